"""The kind `query`: topics -> SQL over their rows -> a topic."""
