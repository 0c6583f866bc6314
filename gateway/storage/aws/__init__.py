"""AWS credentials and roles."""
