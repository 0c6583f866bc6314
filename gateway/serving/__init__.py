"""The running server: one process or several, watched, limited, reloaded, drained."""
