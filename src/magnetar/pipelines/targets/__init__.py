"""Tables in files: Delta and Iceberg tables, and folders of files, on a disk or in an object store."""
