"""The admin API: recipients, metrics and reload over HTTP, on a listener of its own."""
