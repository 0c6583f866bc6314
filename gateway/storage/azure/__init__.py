"""Identities of Azure, and the keys that sign for them."""
