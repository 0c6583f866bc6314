"""The commands `delta-gateway generate | fleet | usage`."""
