"""Checks grants with conditions against the tables that they are for.

In: a configuration and a grant. Out: warnings, or RecipientError for a condition that the partition columns
of no table decide. Blocks: the logs of tables are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from gateway.catalog.catalog import Recipient
from gateway.catalog.grants import Grant, place_text
from gateway.config import Config
from gateway.errors import GatewayError
from gateway.governance.recipient_records import RecipientError
from gateway.state import GatewayState
from gateway.tables.native import LogError, RuleRefused
from gateway.tables.rules import InvalidRule

MAX_TABLES = 50
"""The tables that are read for a grant of many."""


def grant_warnings(
    config: Config, grants: Iterable[Grant], properties: tuple[tuple[str, str], ...]
) -> list[str]:
    """Return warnings about grants, which may be given nevertheless.

    Raises RecipientError for a condition that each of its tables was read for and none decides.
    """
    state = GatewayState.of(config)
    try:
        return [
            warning
            for grant in grants
            if grant.condition is not None
            for warning in _warnings(state, grant, properties)
        ]
    finally:
        state.tables.close()


def _warnings(state: GatewayState, grant: Grant, properties: tuple[tuple[str, str], ...]) -> Iterator[str]:
    recipient = Recipient("", frozenset(), (), (grant,), properties)
    refused, decided, unread = [], 0, []
    for table in islice(state.catalog.tables_of(recipient), MAX_TABLES):
        try:
            opened = state.tables.open(table)
            rule = opened.rule
            if rule is not None:
                opened.snapshot().check_rule(rule)
            decided += 1
        except (RuleRefused, InvalidRule) as error:
            refused.append(f"{table.full_name}: {error.detail}")
        except (LogError, GatewayError) as error:
            unread.append(f"{table.full_name} is not checked, it cannot be read: {error}")
    if refused and not decided and not unread:
        raise RecipientError(f"the condition for {place_text(grant)}: {'; '.join(refused)}")
    if not refused and not decided and not unread:
        yield f"no share lists a table that {place_text(grant)} is for; its condition is not checked"
    yield from (f"requests for {problem}; they are refused" for problem in refused)
    yield from unread
