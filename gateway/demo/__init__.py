"""`delta-gateway demo`: small Delta tables, a gateway that shares them, and a reader that checks both.

`tables` writes the tables, `command` writes configuration and profile and prints how to read them, `reader`
reads them through HTTP as a recipient does, and `frames` shows their rows with the extra `demo`.
"""

from gateway.demo.command import run
from gateway.demo.tables import SCHEMA, SHARE, TABLES, lay_out

__all__ = ["SCHEMA", "SHARE", "TABLES", "lay_out", "run"]
