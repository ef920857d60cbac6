"""Declared pipelines, and the lease of their worker."""
