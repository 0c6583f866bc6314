"""A database of recipients, its clock, and the changes that it reports."""

import pytest
from support.gateway_app import Clock

from gateway.governance.recipient_store import RecipientDatabase


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    """A server that follows a database sees its changes soon, so that no test waits for the next look."""
    for name in (
        "credential_store.PAUSE_SECONDS",
        "credential_store.POLL_SECONDS",
        "reading_thread.FILE_POLL_SECONDS",
        "reading_thread.POLL_SECONDS",
    ):
        monkeypatch.setattr(f"gateway.governance.{name}", 0.02)


@pytest.fixture
def clock():
    return Clock(1_700_000_000_000)


@pytest.fixture
def changes():
    return []


@pytest.fixture
def database(place, clock, changes):
    """In SQLite, and in PostgreSQL."""
    database = RecipientDatabase(
        place,
        now_ms=clock,
        actor="cli:test",
        taken_names=lambda: frozenset({"from-yaml"}),
        known_shares=lambda: ["sales", "Logs", "a share", "other share"],
        on_changes=changes.extend,
    )
    yield database
    database.close()
