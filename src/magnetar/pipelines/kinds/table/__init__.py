"""The kind `table`: topics -> a table.  `kind` is what a worker calls, `sink` what Spark calls, `batches` the work."""
