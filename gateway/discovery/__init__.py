"""Searches for tables in the directories of a storage and in a Unity Catalog."""
