"""Data pipelines on Apache Spark.

Nothing is imported here: Spark, Arrow and pandas cost a second and hundreds of megabytes, and each module of this
package loads them when it is used.  The package knows the server by its REST and by the files of sealed segments only.
"""
