"""What the server knows of the findings that `delta-gateway doctor` would have for a new profile.

In: the recipient of an activation link. Out: steps with the names and results of the doctor's. The lists are
those of the catalog, and a table is read as its route reads it, under the rule of the recipient's grants.
Nothing is requested by HTTP: whether the recipient's machine reaches the server and the store, trusts its
certificate and has the right time is known there alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, repeat
from typing import Literal

from gateway.catalog.catalog import Catalog, Recipient, SharedTable
from gateway.config.networks import Address, allowed
from gateway.errors import GatewayError
from gateway.protocol.capabilities import ResponseFormat
from gateway.protocol.client_features import features_text
from gateway.report.times import left, moment
from gateway.state import GatewayState
from gateway.tables.native import LogError, Snapshot, Stop
from gateway.tables.open_table import OpenTable, from_readable_files

Result = Literal["ok", "warn", "fail"]

READ_SECONDS = 5.0
"""The profile is given after this time at the latest, whatever the storage does."""
SHARES_TRIED, NAMES_SHOWN, MAX_NAME_LENGTH = 5, 10, 64
NO_TIME = f"the table was not read within {READ_SECONDS:g} seconds"


@dataclass(frozen=True, slots=True)
class CheckStep:
    """The result of a step."""

    name: str
    result: Result
    message: str


@dataclass(frozen=True, slots=True)
class Credentials:
    """What the profile holds: `words` name it, and `expires_ms` is its end; None for never."""

    words: str
    expires_ms: int | None


async def check_profile(
    state: GatewayState, recipient: Recipient, credentials: Credentials, address: Address | None
) -> list[CheckStep]:
    """Return the steps for a profile that was given to an address."""
    steps = [_end(credentials, state.now_ms())]
    if recipient.networks and not allowed(recipient.networks, address):
        message = "requests from the address of this browser are refused: the recipient reads from others"
        steps.append(CheckStep("server", "warn", message))
    listed, table = await asyncio.to_thread(_listed, state.catalog, recipient)
    return [*steps, *listed, *([] if table is None else await _table(state, recipient, table))]


def _listed(catalog: Catalog, recipient: Recipient) -> tuple[list[CheckStep], SharedTable | None]:
    """Return the steps of the lists, and the first table."""
    shares = catalog.shares_of(recipient)
    if not shares:
        message = "the recipient has no share; the provider grants one"
        return [CheckStep("shares", "fail", message)], None
    steps = [CheckStep("shares", "ok", f"{len(shares)}: {_names(share.name for share in shares)}")]
    for share in shares[:SHARES_TRIED]:
        tables = catalog.share(recipient, share.name).tables()
        if tables:
            listed = f"{len(tables)} in the share {share.name[:MAX_NAME_LENGTH]}: "
            names = _names(table.name for table in tables)
            return [*steps, CheckStep("tables", "ok", listed + names)], tables[0]
    message = f"no table is in the first {min(SHARES_TRIED, len(shares))} shares"
    return [*steps, CheckStep("tables", "warn", message)], None


def _end(credentials: Credentials, now_ms: int) -> CheckStep:
    end_ms = credentials.expires_ms
    end = "without an end" if end_ms is None else f"until {moment(end_ms)}, {left(end_ms, now_ms)}"
    return CheckStep("profile", "ok", f"{credentials.words} {end}")


async def _table(state: GatewayState, recipient: Recipient, listed: SharedTable) -> list[CheckStep]:
    """Read the version and the metadata of a table."""
    stop = Stop(seconds=READ_SECONDS)
    try:
        table = state.catalog.table(recipient, listed.share, listed.schema, listed.name)
        version, features = await state.tables.read(recipient.name, table, _read, stop)
    except TimeoutError:
        return [CheckStep("version", "fail", NO_TIME)]
    except (GatewayError, LogError) as error:
        # Their texts are those that recipients get.
        return [CheckStep("version", "fail", str(error))]
    finally:
        stop.cancel()
    able, message = features_text(features)
    return [
        CheckStep("version", "ok", f"{listed.full_name} is at version {version}"),
        CheckStep("metadata", "ok" if able else "warn", message),
    ]


def _read(opened: OpenTable, stop: Stop) -> tuple[int, Sequence[str]]:
    """Return the version and the reader features, if the first lines of an answer can be written. Blocks."""
    return from_readable_files(opened.snapshot, partial(_features_of, opened, stop))


def _features_of(opened: OpenTable, stop: Stop, snapshot: Snapshot) -> tuple[int, Sequence[str]]:
    response_format: ResponseFormat = "delta" if snapshot.needs_delta_format else "parquet"
    opened.header(snapshot, response_format, with_version=False, stop=stop)
    return snapshot.version, snapshot.client_reader_features


def _names(names: Iterable[str]) -> str:
    *shown, more = islice(chain(names, repeat(None)), NAMES_SHOWN + 1)
    text = ", ".join(name[:MAX_NAME_LENGTH] for name in shown if name is not None)
    return text if more is None else f"{text}, …"
