"""A client of the Delta Sharing protocol, for any server: the doctor, Spark's reader and the demo use it.

In: a profile. Out: lists, heads, data files by page, and the bytes of files by URLs that stay fresh. It needs
nothing of the server; the native module only reads deletion vectors.
"""
