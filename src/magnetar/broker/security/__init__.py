"""The caller, and whether it may: each use case asks once, whatever the door."""
