"""Identities of Google Cloud, and the keys that sign for them."""
