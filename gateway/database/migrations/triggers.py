"""The triggers that record each change in the table `changes`, by whatever program it is made.

PostgreSQL takes a lock first, which it holds to the end of the transaction. Without it a transaction with a
lower number could be committed after one with a higher number, and servers that have read the higher number
would never read the lower one. It also notifies the servers.
"""

from __future__ import annotations

from sqlalchemy import Connection

from gateway.database.changes import CHANNEL, LOCK

FUNCTION = "delta_gateway_changed"
READ_TABLES = {
    "recipients": ("recipient", "key"),
    "tokens": ("recipient", "recipient"),
    "clients": ("recipient", "recipient"),
    "client_secrets": ("recipient", "recipient"),
    "networks": ("recipient", "recipient"),
    "policies": ("recipient", "recipient"),
    "grants": ("recipient", "recipient"),
    "shares": ("share", "key"),
    "schemas": ("share", "share"),
    "tables": ("share", "share"),
}
"""The tables that servers hold in memory, with the kind of their changes and the column of its key."""

_FUNCTION = f"""
CREATE FUNCTION {FUNCTION}() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
    rows text;
BEGIN
    PERFORM pg_advisory_xact_lock({LOCK});
    IF TG_OP = 'TRUNCATE' THEN
        rows := '(VALUES ('''')) AS truncated (key)';
    ELSE
        rows := CASE TG_OP
            WHEN 'INSERT' THEN format('(SELECT %I FROM after_change) AS changed (key)', TG_ARGV[1])
            WHEN 'DELETE' THEN format('(SELECT %I FROM before_change) AS changed (key)', TG_ARGV[1])
            ELSE format('(SELECT %1$I FROM before_change UNION SELECT %1$I FROM after_change)'
                || ' AS changed (key)', TG_ARGV[1])
            END;
    END IF;
    EXECUTE format('INSERT INTO %I.changes (stamp, kind, key)'
        || ' SELECT gen_random_uuid()::text, %L, key FROM %s GROUP BY key',
        TG_TABLE_SCHEMA, CASE TG_OP WHEN 'TRUNCATE' THEN 'all' ELSE TG_ARGV[0] END, rows);
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written > 0 THEN
        PERFORM pg_notify('{CHANNEL}', '');
    END IF;
    RETURN NULL;
END
$$
"""
_TRANSITIONS = {
    "INSERT": "REFERENCING NEW TABLE AS after_change",
    "UPDATE": "REFERENCING OLD TABLE AS before_change NEW TABLE AS after_change",
    "DELETE": "REFERENCING OLD TABLE AS before_change",
    "TRUNCATE": "",
}
_NEW, _OLD = (
    f"INSERT INTO changes (stamp, kind, key) SELECT lower(hex(randomblob(16))), '{{kind}}', {row}.{{column}}"
    for row in ("NEW", "OLD")
)
# A row that is moved to another key has changed for both.
_STATEMENTS = {
    "INSERT": f"{_NEW};",
    "UPDATE": f"{_NEW}; {_OLD} WHERE OLD.{{column}} <> NEW.{{column}};",
    "DELETE": f"{_OLD};",
}


def create(connection: Connection) -> None:
    """Create the triggers."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_FUNCTION.replace("%", "%%"))
        for table, (kind, column) in READ_TABLES.items():
            for operation, transition in _TRANSITIONS.items():
                connection.exec_driver_sql(
                    f"CREATE TRIGGER {table}_{operation.lower()} AFTER {operation} ON {table} {transition}"
                    f" FOR EACH STATEMENT EXECUTE FUNCTION {FUNCTION}('{kind}', '{column}')"
                )
        return
    for table, (kind, column) in READ_TABLES.items():
        for operation, statements in _STATEMENTS.items():
            connection.exec_driver_sql(
                f"CREATE TRIGGER {table}_{operation.lower()} AFTER {operation} ON {table} BEGIN"
                f" {statements.format(kind=kind, column=column)} END"
            )
