"""What is shared, and which grants give a recipient a part of it."""
