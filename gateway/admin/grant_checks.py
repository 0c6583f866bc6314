"""Checks grants with conditions against the tables that they are for.

In: a configuration and a grant. Out: warnings, or RecipientError for a condition that the partition columns
of no table decide. Blocks: the logs of tables are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from gateway.catalog.catalog import Catalog, Recipient
from gateway.catalog.grants import Grant, place_text
from gateway.config import Config
from gateway.errors import GatewayError
from gateway.governance.recipient_records import RecipientError
from gateway.tables.native import LogError, RuleRefused
from gateway.tables.registry import Tables
from gateway.tables.rules import InvalidRule

MAX_TABLES = 50
"""The tables that are read for a grant of many."""


def grant_warnings(
    config: Config, grants: Iterable[Grant], properties: tuple[tuple[str, str], ...]
) -> list[str]:
    """Return warnings about grants, which may be given nevertheless.

    Raises RecipientError for a condition that each of its tables was read for and none decides.
    """
    catalog = Catalog.of(config.shares)
    # No URL is signed.
    tables = Tables(config, catalog, url_keys=[b""])
    searched = {source.share.casefold() for source in config.sources}
    try:
        return [
            warning
            for grant in grants
            for warning in (
                _warnings(catalog, tables, grant, properties)
                if grant.condition is not None
                else _place_warnings(catalog, grant, searched)
            )
        ]
    finally:
        tables.close()


def _place_warnings(catalog: Catalog, grant: Grant, searched: Collection[str]) -> Iterator[str]:
    """Warn of a part that is not listed, unless a search may find it."""
    if grant.is_whole_share or grant.share.casefold() in searched:
        return
    recipient = Recipient("", frozenset(), (), (grant,), ())
    if not any(catalog.share(recipient, share.name).schemas for share in catalog.shares_of(recipient)):
        yield f"no share lists {place_text(grant)}: look at its spelling, or add it to the share"


def _warnings(
    catalog: Catalog, tables: Tables, grant: Grant, properties: tuple[tuple[str, str], ...]
) -> Iterator[str]:
    recipient = Recipient("", frozenset(), (), (grant,), properties)
    refused, decided, unread = [], 0, []
    for table in islice(catalog.tables_of(recipient), MAX_TABLES):
        try:
            opened = tables.open(table)
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
