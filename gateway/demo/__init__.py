"""`delta-gateway demo`: small real tables, a gateway over them, and a reader that proves both.

`tables` lays the tables out, `command` writes configuration and profile and says how to read them, `reader`
reads them back through HTTP as any recipient would.
"""

from gateway.demo.command import run
from gateway.demo.tables import SCHEMA, SHARE, TABLES, lay_out

__all__ = ["SCHEMA", "SHARE", "TABLES", "lay_out", "run"]
