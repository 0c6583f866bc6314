"""Creates the tables.

Revision ID: 0001
"""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from gateway.database.migrations import triggers

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _recipient(*, primary_key: bool = False) -> sa.Column[str]:
    reference = sa.ForeignKey("recipients.key", ondelete="CASCADE")
    return sa.Column("recipient", KEY, reference, primary_key=primary_key, nullable=False)


def upgrade() -> None:
    """Create the tables."""
    connection = op.get_bind()
    _create_recipients()
    _create_access()
    _create_shares()
    _create_records()
    triggers.create(connection)
    # Identifies the database from its first moment.
    stamp = secrets.token_hex(16)
    connection.execute(
        sa.text("INSERT INTO changes (stamp, kind, key) VALUES (:stamp, 'all', '')"), {"stamp": stamp}
    )


def _create_recipients() -> None:
    op.create_table(
        "recipients",
        sa.Column("key", KEY, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column(
            "properties",
            sa.Text,
            nullable=False,
            comment="JSON: texts by name, for conditions of grants",
        ),
        sa.Column("forbids_bearer_tokens", sa.Boolean, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("sha256", KEY, primary_key=True, comment="of the token, in small hexadecimal digits"),
        _recipient(),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, comment="null: the token does not expire"),
    )
    op.create_index("ix_tokens_recipient", "tokens", ["recipient"])
    op.create_table(
        "clients",
        sa.Column("id", KEY, primary_key=True),
        _recipient(),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_clients_recipient", "clients", ["recipient"])
    op.create_table(
        "client_secrets",
        sa.Column("sha256", KEY, primary_key=True),
        _recipient(),
        sa.Column("client", KEY, sa.ForeignKey("clients.id", ondelete="CASCADE"), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger),
    )
    op.create_index("ix_client_secrets_recipient", "client_secrets", ["recipient"])
    op.create_index("ix_client_secrets_client", "client_secrets", ["client"])


def _create_access() -> None:
    op.create_table(
        "networks",
        _recipient(primary_key=True),
        sa.Column("network", KEY, primary_key=True, comment="in CIDR notation"),
    )
    op.create_table(
        "policies",
        _recipient(primary_key=True),
        sa.Column("name", KEY, primary_key=True),
        sa.Column("issuer", sa.Text, nullable=False),
        sa.Column("subject_claim", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("audiences", sa.Text, nullable=False, comment="JSON: texts"),
        sa.Column("claims", sa.Text, nullable=False, comment="JSON: texts by name"),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "grants",
        sa.Column("id", NUMBER, primary_key=True, autoincrement=True),
        _recipient(),
        sa.Column("share", KEY, nullable=False, comment="key of the share; * for every share"),
        sa.Column("schema", KEY, comment="key of the schema; null: every schema"),
        sa.Column("table", KEY, comment="key of the table; null: every table"),
        sa.Column("condition", sa.Text, comment="SQL over partition columns; null: all files"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ux_grants_place",
        "grants",
        ["recipient", "share", sa.text("coalesce(schema, '')"), sa.text("coalesce(\"table\", '')")],
        unique=True,
    )
    op.create_table(
        "activation_links",
        sa.Column("sha256", KEY, primary_key=True, comment="of the code in the link"),
        _recipient(),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
        sa.Column("used_ms", sa.BigInteger, comment="null: not used yet"),
        sa.Column("kind", sa.Text, nullable=False, comment="what the link gives: token or client"),
        sa.Column("lifetime_seconds", sa.BigInteger, comment="of the token or secret; null: without end"),
    )
    op.create_index("ix_activation_links_recipient", "activation_links", ["recipient"])


def _create_shares() -> None:
    op.create_table(
        "shares",
        sa.Column("key", KEY, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column(
            "options",
            sa.Text,
            nullable=False,
            comment="JSON: the other keys of a share in the configuration",
        ),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "schemas",
        sa.Column("share", KEY, sa.ForeignKey("shares.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("key", KEY, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column(
            "options",
            sa.Text,
            nullable=False,
            comment="JSON: the other keys of a schema, without `tables`",
        ),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tables",
        sa.Column("share", KEY, primary_key=True),
        sa.Column("schema", KEY, primary_key=True),
        sa.Column("key", KEY, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column(
            "options",
            sa.Text,
            nullable=False,
            comment="JSON: the other keys of a table, such as `accessModes`",
        ),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(["share", "schema"], ["schemas.share", "schemas.key"], ondelete="CASCADE"),
    )


def _create_records() -> None:
    op.create_table(
        "history",
        sa.Column("id", NUMBER, primary_key=True, autoincrement=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False, comment="of the subject: recipient or share"),
        sa.Column(
            "subject",
            KEY,
            nullable=False,
            comment="key of the recipient or share; empty for neither",
        ),
        sa.Column("name", sa.Text, nullable=False, comment="of the subject, as it was spelled"),
        sa.Column("detail", sa.Text, nullable=False, comment="JSON: texts by name"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_history_subject", "history", ["kind", "subject"])
    op.create_table(
        "replicas",
        sa.Column("id", KEY, primary_key=True),
        sa.Column(
            "beat_ms",
            sa.BigInteger,
            nullable=False,
            comment="last sign of life, by the database's clock",
        ),
    )
    op.create_table(
        "changes",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=True),
        sa.Column(
            "stamp",
            sa.Text,
            nullable=False,
            comment="random: the same number after a restore has another one",
        ),
        sa.Column("kind", sa.Text, nullable=False, comment="recipient, share, or all"),
        sa.Column("key", KEY, nullable=False),
        sqlite_autoincrement=True,
    )
