"""The PySpark pipeline: a Spark data source for shares, and the commands that use Spark.

In: a profile file, a gateway configuration, Delta tables. Out: DataFrames and reports. The server imports
nothing of this package, and importing it imports neither PySpark nor the native module.
"""
