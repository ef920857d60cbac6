"""The kind `replicator`: a topic -> a target outside.

`kind` is what a worker calls, `sink` what Spark calls, `task` the work.
"""
