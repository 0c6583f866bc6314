"""The commands of `delta-gateway`: modules with `add_arguments` and `run`, which returns the exit code."""
