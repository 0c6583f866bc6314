"""The name of a shared table."""

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True)
class TableName:
    """The name of a shared table: `share.schema.table`."""

    share: str
    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> "TableName":
        """Split `share.schema.table`; a share's name may contain dots, the other two cannot."""
        share_and_schema, _, table = text.rpartition(".")
        share, _, schema = share_and_schema.rpartition(".")
        if not (share and schema and table):
            raise ValueError(f"a shared table is named share.schema.table, not {text!r}")
        return cls(share, schema, table)

    def __str__(self) -> str:
        """Return `share.schema.table`."""
        return f"{self.share}.{self.schema}.{self.table}"

    @property
    def path(self) -> str:
        """Return the table's part of the URL."""
        share, schema, table = (quote(part, safe="") for part in (self.share, self.schema, self.table))
        return f"/shares/{share}/schemas/{schema}/tables/{table}"
