"""Which producers may write: admission of named producers, and producer ids."""
