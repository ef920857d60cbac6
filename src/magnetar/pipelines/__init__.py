"""Data pipelines on Apache Spark.

This module imports nothing: Spark, Arrow and pandas cost a second and hundreds of megabytes, and each module of this
package loads them when it is used.  The package reaches the server only over REST and by its segment files.
"""
