"""One partition's log: what clients may append, what they have appended, and what they may read."""
