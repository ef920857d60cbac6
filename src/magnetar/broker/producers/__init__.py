"""Who may produce: admission of named producers, and producer ids."""
