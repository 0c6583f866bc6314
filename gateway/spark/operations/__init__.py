"""`delta-gateway generate | fleet | usage`."""
