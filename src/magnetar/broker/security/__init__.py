"""The caller and its rights: each use case asks once, whichever door calls it."""
