"""One partition's log: what may be appended, what was, and what of it may be read."""
