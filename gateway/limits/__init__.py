"""Bounds on requests, streams and memory."""
