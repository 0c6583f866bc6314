"""Temporary credentials of the stores, each limited to one directory and to reading."""
