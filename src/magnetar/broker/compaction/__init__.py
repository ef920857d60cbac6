"""The last value of each key: see docs/internals/compaction.md."""
