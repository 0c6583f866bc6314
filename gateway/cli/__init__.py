"""The commands of `delta-gateway`: each module has `add_arguments` and `run`, which returns the exit code."""
