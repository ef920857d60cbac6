"""The data source `magnetar`, read side: topics as DataFrames and streams.

`options` and `positions` say what a user may ask for, `plan` what tasks read, `reader` reads it, and `stream` does
the same again and again.  `datasource` is the part that Spark sees.  `slices` is the descriptor path: for jobs that
want columns in a Python worker instead of rows in Spark.
"""
