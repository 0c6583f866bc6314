"""The command `delta-gateway verify`: compares a share with its tables."""
