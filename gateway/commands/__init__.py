"""The commands that look and make, a room each: `add_arguments` and `run`, which gives the exit code."""
