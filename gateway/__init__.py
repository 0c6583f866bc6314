"""A gateway that shares Delta tables of millions of files over the Delta Sharing protocol."""
