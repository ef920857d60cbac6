"""Pipelines as they are declared, and the lease of their worker."""
