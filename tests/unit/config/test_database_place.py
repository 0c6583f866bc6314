"""Which changes of the database's URL need a restart."""

from __future__ import annotations

import json

import pytest

from gateway.config import loads
from gateway.config.effects import changed_fixed_keys

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
