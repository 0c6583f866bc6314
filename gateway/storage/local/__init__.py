"""Directories of the machine."""
