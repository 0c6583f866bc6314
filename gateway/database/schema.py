"""The tables of the database, the same in SQLite and PostgreSQL.

Out: `METADATA` with one `Table` for each table. `migration` creates them, and brings earlier ones
up to date by the steps in `migrations`.

Names are compared without case by a second column, `key`, which `recipient_key` and `name_key` make: the two
databases fold case differently. Other tables refer to a recipient by its key, and rows that belong to a
recipient, share or schema are deleted with it. Times are milliseconds since 1970. Texts named as JSON hold an
object or an array.

Triggers write a row of `changes` for each change of what servers read, by whatever program it is made: see
`gateway.database.changes`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    func,
)
from sqlalchemy.dialects import postgresql

HEAD = "0001"
"""The revision of `migrations` that these tables are of."""

METADATA = MetaData()

# Sorted and compared by bytes, in PostgreSQL whatever the collation of the database is.
KEY = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
# SQLite numbers rows of this type only.
NUMBER = BigInteger().with_variant(Integer(), "sqlite")


def recipient_key(name: str) -> str:
    """Return a recipient's name as it is compared: without the case of ASCII letters."""
    if name.isascii():
        return name.lower()
    return name.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def name_key(name: str) -> str:
    """Return the name of a share, schema or table as it is compared."""
    return name.casefold()


def _recipient(*, primary_key: bool = False) -> Column[str]:
    reference = ForeignKey("recipients.key", ondelete="CASCADE")
    return Column("recipient", KEY, reference, primary_key=primary_key, nullable=False)


RECIPIENTS = Table(
    "recipients",
    METADATA,
    Column("key", KEY, primary_key=True),
    Column("name", Text, nullable=False),
    Column("comment", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("properties", Text, nullable=False, comment="JSON: texts by name, for conditions of grants"),
    Column("forbids_bearer_tokens", Boolean, nullable=False),
)

TOKENS = Table(
    "tokens",
    METADATA,
    Column("sha256", KEY, primary_key=True, comment="of the token, in small hexadecimal digits"),
    _recipient(),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, comment="null: the token does not expire"),
    Index("ix_tokens_recipient", "recipient"),
)

CLIENTS = Table(
    "clients",
    METADATA,
    Column("id", KEY, primary_key=True),
    _recipient(),
    Column("created_ms", BigInteger, nullable=False),
    Index("ix_clients_recipient", "recipient"),
)

CLIENT_SECRETS = Table(
    "client_secrets",
    METADATA,
    Column("sha256", KEY, primary_key=True),
    _recipient(),
    Column("client", KEY, ForeignKey("clients.id", ondelete="CASCADE"), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Index("ix_client_secrets_recipient", "recipient"),
    Index("ix_client_secrets_client", "client"),
)

NETWORKS = Table(
    "networks",
    METADATA,
    _recipient(primary_key=True),
    Column("network", KEY, primary_key=True, comment="in CIDR notation"),
)

POLICIES = Table(
    "policies",
    METADATA,
    _recipient(primary_key=True),
    Column("name", KEY, primary_key=True),
    Column("issuer", Text, nullable=False),
    Column("subject_claim", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("audiences", Text, nullable=False, comment="JSON: texts"),
    Column("claims", Text, nullable=False, comment="JSON: texts by name"),
    Column("created_ms", BigInteger, nullable=False),
)

GRANTS = Table(
    "grants",
    METADATA,
    Column("id", NUMBER, primary_key=True, autoincrement=True),
    _recipient(),
    Column("share", KEY, nullable=False, comment="key of the share; * for every share"),
    Column("schema", KEY, comment="key of the schema; null: every schema"),
    Column("table", KEY, comment="key of the table; null: every table"),
    Column("condition", Text, comment="SQL over partition columns; null: all files"),
    sqlite_autoincrement=True,
)
# At most one grant for a place: null is equal to null here.
Index(
    "ux_grants_place",
    GRANTS.c.recipient,
    GRANTS.c.share,
    func.coalesce(GRANTS.c.schema, ""),
    func.coalesce(GRANTS.c.table, ""),
    unique=True,
)

ACTIVATION_LINKS = Table(
    "activation_links",
    METADATA,
    Column("sha256", KEY, primary_key=True, comment="of the code in the link"),
    _recipient(),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("used_ms", BigInteger, comment="null: not used yet"),
    Column("kind", Text, nullable=False, comment="what the link gives: token or client"),
    Column("lifetime_seconds", BigInteger, comment="of the token or secret; null: without end"),
    Index("ix_activation_links_recipient", "recipient"),
)

SHARES = Table(
    "shares",
    METADATA,
    Column("key", KEY, primary_key=True),
    Column("name", Text, nullable=False),
    Column("options", Text, nullable=False, comment="JSON: the other keys of a share in the configuration"),
    Column("created_ms", BigInteger, nullable=False),
)

SCHEMAS = Table(
    "schemas",
    METADATA,
    Column("share", KEY, ForeignKey("shares.key", ondelete="CASCADE"), primary_key=True),
    Column("key", KEY, primary_key=True),
    Column("name", Text, nullable=False),
    Column("options", Text, nullable=False, comment="JSON: the other keys of a schema, without `tables`"),
    Column("created_ms", BigInteger, nullable=False),
)

TABLES = Table(
    "tables",
    METADATA,
    Column("share", KEY, primary_key=True),
    Column("schema", KEY, primary_key=True),
    Column("key", KEY, primary_key=True),
    Column("name", Text, nullable=False),
    Column("location", Text, nullable=False),
    Column("options", Text, nullable=False, comment="JSON: the other keys of a table, such as `accessModes`"),
    Column("created_ms", BigInteger, nullable=False),
    ForeignKeyConstraint(["share", "schema"], ["schemas.share", "schemas.key"], ondelete="CASCADE"),
)

HISTORY = Table(
    "history",
    METADATA,
    Column("id", NUMBER, primary_key=True, autoincrement=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("kind", Text, nullable=False, comment="of the subject: recipient or share"),
    Column("subject", KEY, nullable=False, comment="key of the recipient or share; empty for neither"),
    Column("name", Text, nullable=False, comment="of the subject, as it was spelled"),
    Column("detail", Text, nullable=False, comment="JSON: texts by name"),
    Index("ix_history_subject", "kind", "subject"),
    sqlite_autoincrement=True,
)

REPLICAS = Table(
    "replicas",
    METADATA,
    Column("id", KEY, primary_key=True),
    Column("beat_ms", BigInteger, nullable=False, comment="last sign of life, by the database's clock"),
)

CHANGES = Table(
    "changes",
    METADATA,
    Column("number", NUMBER, primary_key=True, autoincrement=True),
    Column("stamp", Text, nullable=False, comment="random: the same number after a restore has another one"),
    Column("kind", Text, nullable=False, comment="recipient, share, or all"),
    Column("key", KEY, nullable=False),
    sqlite_autoincrement=True,
)
