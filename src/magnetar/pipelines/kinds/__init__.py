"""The kinds of pipelines.  Each has a folder of its own, and none imports another."""
