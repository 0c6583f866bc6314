"""The running server: one process or several, connections, reload and drain."""
