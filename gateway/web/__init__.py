"""HTTP requests and responses: the pipeline, streaming and error responses."""
