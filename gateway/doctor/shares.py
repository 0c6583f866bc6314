"""Lists what the recipient may read, and chooses a table.

In: a server, and perhaps the name of a table. Out: findings for shares, schemas and tables, and the item of
the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from gateway.client.table_name import TableName
from gateway.doctor import server_errors
from gateway.doctor.clock import REFRESH_MARGIN_SECONDS, clock_problem, skew_seconds
from gateway.doctor.connection_errors import SERVER
from gateway.doctor.findings import Findings, Owner, Problem
from gateway.doctor.server import Listing, Server
from gateway.doctor.transport import Answer

NAMES_SHOWN = 5
SHARES_TRIED = 5
"""Of a profile without a table: the shares that are searched for one."""


@dataclass(frozen=True, slots=True)
class ChosenTable:
    """A table and its item in the list."""

    name: TableName
    item: Mapping[str, Any]

    @property
    def access_modes(self) -> tuple[str, ...]:
        """Return the ways to read the files; a list without them means URLs."""
        modes = self.item.get("accessModes")
        return tuple(map(str, modes)) if isinstance(modes, list) and modes else ("url",)


def choose_table(server: Server, wanted: TableName | None, findings: Findings) -> ChosenTable | None:
    """List shares, schemas and tables, and return a table; None if there is none. Raises Problem."""
    shares = _shares(server, findings)
    if wanted is not None:
        share = _find(shares, wanted.share, "share")
        return _named(server, TableName(share, wanted.schema, wanted.table), findings)
    for item in shares.items[:SHARES_TRIED]:
        if (chosen := _first(server, str(item["name"]), findings)) is not None:
            return chosen
    problem = Problem(
        f"no table is in the first {min(SHARES_TRIED, len(shares.items))} shares",
        Owner.PROVIDER,
        "add tables to the share; --table names a table of another share",
    )
    findings.warn("tables", problem)
    return None


def _shares(server: Server, findings: Findings) -> Listing:
    request = server_errors.LIST_OF_SHARES
    url = f"{server.endpoint}/shares"
    answer = server.send("GET", url)
    _check_clock(answer, findings)
    if answer.status == 404 and (elsewhere := server.endpoint_elsewhere()) is not None:  # noqa: PLR2004
        problem = server_errors.explain(answer, request)
        raise Problem(problem.message, Owner.RECIPIENT, f"write {elsewhere} as the endpoint of the profile")
    server.check(answer, request)
    shares = server.list("/shares", request, answer)
    if not shares.items:
        raise Problem("the recipient has no share", Owner.PROVIDER, "grant a share to the recipient")
    findings.ok("shares", f"{shares.count}: {_names(shares)}")
    return shares


def _check_clock(answer: Answer, findings: Findings) -> None:
    problem, skew = clock_problem(answer, SERVER.name), skew_seconds(answer)
    if skew is None:
        return
    if problem is None:
        findings.ok("clock", f"within a minute of {SERVER.name}")
    elif abs(skew) < REFRESH_MARGIN_SECONDS:
        findings.warn("clock", problem)
    else:
        findings.fail("clock", problem)


def _named(server: Server, wanted: TableName, findings: Findings) -> ChosenTable:
    path = f"/shares/{quote(wanted.share, safe='')}/schemas"
    schemas = server.list(path, "the list of schemas")
    schema = _find(schemas, wanted.schema, "schema")
    findings.ok("schemas", f"{schemas.count}: {_names(schemas)}")
    tables = server.list(f"{path}/{quote(schema, safe='')}/tables", "the list of tables")
    table = _find(tables, wanted.table, "table")
    findings.ok("tables", f"{tables.count}: {_names(tables)}")
    return ChosenTable(TableName(wanted.share, schema, table), tables.find(table) or {})


def _first(server: Server, share: str, findings: Findings) -> ChosenTable | None:
    path = f"/shares/{quote(share, safe='')}"
    schemas = server.list(f"{path}/schemas", "the list of schemas")
    findings.ok("schemas", f"{schemas.count} in the share {share}: {_names(schemas)}")
    tables = server.list(f"{path}/all-tables", "the list of all tables")
    if not tables.items:
        return None
    findings.ok("tables", f"{tables.count} in the share {share}: {_names(tables)}")
    item = tables.items[0]
    return ChosenTable(TableName(share, str(item.get("schema") or "default"), str(item["name"])), item)


def _find(listing: Listing, name: str, kind: str) -> str:
    """Return a name as the server writes it. Raises Problem if the list does not have it."""
    item = listing.find(name)
    if item is not None:
        return str(item["name"])
    if not listing.is_whole:
        return name
    raise Problem(
        f"the {kind} {name} is not granted; the recipient has {_names(listing) or 'none'}",
        Owner.RECIPIENT,
        f"correct the name, or ask the provider for the {kind}",
    )


def _names(listing: Listing) -> str:
    names = ", ".join(str(item["name"]) for item in listing.items[:NAMES_SHOWN])
    return names if len(listing.items) <= NAMES_SHOWN else f"{names}, …"
