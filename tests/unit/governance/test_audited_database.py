"""The database that a server opens at its start."""

import logging

from gateway.catalog.stored_shares import StoredShare
from gateway.config import loads
from gateway.governance.audited_database import create_database, open_database, open_share_database


def at_start(config, caplog):
    """The warnings of a start."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        create_database(config, lambda: 0)
    return [record.getMessage() for record in caplog.records]


def test_a_server_warns_of_a_database_without_content_which_may_be_another_one(tmp_path, caplog):
    place = tmp_path / "mistyped" / "recipients.db"
    config = loads(f"version: 1\ngateway:\n  recipientsDatabase: {place}\n")
    for _ in range(2):
        (warning,) = at_start(config, caplog)
        assert warning.startswith(f"{place} has no recipient and no share yet")
    with open_database(config, "tests", now_ms=lambda: 0) as database:
        database.add("bob")
    assert at_start(config, caplog) == []
    with open_database(config, "tests", now_ms=lambda: 0) as database:
        database.delete("bob")
    assert len(at_start(config, caplog)) == 1
    with open_share_database(config, "tests", now_ms=lambda: 0) as shares:
        shares.add(StoredShare("sales"))
    assert at_start(config, caplog) == []


def test_a_server_without_a_database_does_not_warn_of_one(tmp_path, caplog):
    config = loads("version: 1\ngateway:\n  anonymous: true\n", directory=tmp_path)
    assert at_start(config, caplog) == []
    assert not [*tmp_path.iterdir()]
