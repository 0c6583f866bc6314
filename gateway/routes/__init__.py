"""Handlers of the protocol's requests, a module for each resource."""
