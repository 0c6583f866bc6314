"""The PySpark pipeline: shares as a Spark data source, verified, generated, surveyed and accounted at scale.

Comes in: a profile file, a gateway configuration, Delta tables. Goes out: DataFrames and reports. Nothing
here is imported by the server, and importing this package imports neither PySpark nor the native module.
"""
