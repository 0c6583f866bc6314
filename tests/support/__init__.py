"""Shared code of the tests: servers, clients, readers and stores."""
