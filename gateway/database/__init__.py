"""The database of governance: recipients, what they may read, shares, and the history of changes."""
