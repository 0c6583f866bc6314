"""The steps between the schemas of the database, for Alembic: one module in `versions` for each."""
