"""Compaction, which keeps the last value of each key: see docs/internals/compaction.md."""
