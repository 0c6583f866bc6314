"""The first schema, where the steps begin. `gateway.database.migration` makes new tables of `schema`.

Revision ID: 0001
"""

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None
