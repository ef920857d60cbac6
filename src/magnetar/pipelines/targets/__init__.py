"""Tables in files: Delta tables and folders of Parquet files, on a disk or in an object store."""
