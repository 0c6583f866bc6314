"""Searches for tables that nobody lists: in the directories of a storage, and in a Unity Catalog."""
