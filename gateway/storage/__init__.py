"""Object stores and local directories: credentials, calls and circuit breakers."""
