"""Recipients and shares in the database: records, operations, history, and how a server follows them."""
