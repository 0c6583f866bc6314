"""Where the database is, and which changes of its URL need a restart."""

import json
import re
from pathlib import Path

import pytest

from gateway.config import loads
from gateway.config.effects import changed_fixed_keys
from gateway.database.errors import DatabaseError
from gateway.governance.audited_database import create_database

URL = "postgresql://user:old@db:5432/gateway?sslmode=require"


def changed(before: str, after: str) -> list[str]:
    configs = [
        loads(f"version: 1\ngateway: {{anonymous: true, database: {{url: {json.dumps(url)}}}}}\n")
        for url in (before, after)
    ]
    return changed_fixed_keys(*configs)


@pytest.mark.parametrize(
    "after",
    [
        URL.replace("old", "new"),
        URL.replace("user:old", "user"),
        URL.replace("user", "other"),
        URL.replace("require", "verify-full"),
        URL.replace("postgresql", "postgres"),
    ],
)
def test_what_a_new_connection_uses_needs_no_restart(after: str) -> None:
    assert changed(URL, after) == []


@pytest.mark.parametrize(
    "after",
    [
        URL.replace("@db", "@other"),
        URL.replace("5432", "5433"),
        URL.replace("/gateway", "/another"),
        f"{URL}&host=other",
        "sqlite:///recipients.db",
    ],
)
def test_another_database_needs_a_restart(after: str) -> None:
    assert changed(URL, after) == ["gateway.database"]


def test_another_file_needs_a_restart() -> None:
    assert changed("sqlite:///a.db", "sqlite:///b.db") == ["gateway.database"]


def test_a_link_to_a_file_of_an_absent_mount_is_a_database(tmp_path: Path) -> None:
    link = tmp_path / "recipients.db"
    link.symlink_to(tmp_path / "mount" / "recipients.db")
    alone = loads("version: 1\ngateway: {anonymous: true}\n", directory=tmp_path)
    assert alone.has_database
    assert alone.database_source is None
    keys = "anonymous: true, database: 'sqlite:///new.db'"
    beside = loads(f"version: 1\ngateway: {{{keys}}}\n", directory=tmp_path)
    assert beside.database_source == link
    for config in (alone, beside):
        with pytest.raises(DatabaseError, match=re.escape(str(link))):
            create_database(config, lambda: 0)
