"""`delta-gateway check -c FILE`: opens every table and fetches the first byte of one signed file of each.

Prints what recipients will find and what the identity of each storage may do, and exits with 1 when a table
cannot be read, or when its partition values do not decide the rule of a grant. Files of local tables are
looked up as by the files route, because no server runs yet.
"""

from __future__ import annotations

import argparse
import http.client
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from gateway.authentication.credential_table import configured_recipients
from gateway.catalog.catalog import Catalog, SharedTable
from gateway.catalog.stored_shares import IN_CONFIGURATION, StoredShares
from gateway.cli.check_credentials import CredentialFinding, check_credentials, notes
from gateway.cli.check_storages import Stage, StorageFinding, TableStage, check_storages
from gateway.cli.discovered_state import discovered_state, stored_shares
from gateway.cli.storage_errors import explain, explain_error
from gateway.cli.table_memory import cold_bytes, hot_bytes
from gateway.cli.text_table import write_table
from gateway.cli.whole_numbers import process_count
from gateway.config import Config, load
from gateway.config.database import DatabasePlace
from gateway.config.directory_access import check_session_policies
from gateway.database.errors import DatabaseEarlier, DatabaseError, DatabaseMissing
from gateway.errors import GatewayError
from gateway.governance.audited_database import change_problems, check_followed
from gateway.protocol import client_features
from gateway.report.text import printable
from gateway.server.cache_directory import check_cache_directory
from gateway.server.extras import check_extras
from gateway.server.listeners import bind
from gateway.server.tls import listener_context
from gateway.state import GatewayState
from gateway.tables.local_files import inside, split
from gateway.tables.native import AnswerOptions, LogError, RuleRefused, Snapshot, TableNotFound
from gateway.tables.registry import Tables
from gateway.tables.rules import InvalidRule
from gateway.tables.runtime import read_whole
from gateway.telemetry.audit import AuditLog
from gateway.web.request_limits import check_memory

FETCH_TIMEOUT_SECONDS = 30
MAX_ERROR_BYTES = 64 * 1024
ODD_PART = re.compile(r"/\.?(?=/)")
SAMPLED_FILES = 1000
"""Files by whose actions the memory of a table is estimated."""
MOST_REFUSED = 20
"""Maximum number of refused recipients that are named."""


class NotReadable(Exception):
    """Raised for a file that a recipient could not fetch; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A row of the result."""

    table: str
    version: int | None = None
    files: int | None = None
    bytes: int | None = None
    hot_bytes: int | None = None
    """Memory of the columns, which repeated answers read."""
    cold_bytes: int | None = None
    """Memory of an answer that reads the log."""
    features: str = ""
    readers: str = ""
    problem: str = ""
    has_unshared_feed: bool = False
    """The table records its changes, and its history is not shared."""
    stage: TableStage | None = None
    """How far the table was checked, for its storage."""


AnyFinding = Finding | StorageFinding | CredentialFinding


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="the configuration")
    parser.add_argument(
        "--workers", type=process_count, default=1, metavar="N", help="those of the server; default 1"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(arguments: argparse.Namespace) -> int:
    config = load(arguments.config)
    stored: StoredShares = {}
    unread = []
    try:
        stored = stored_shares(config)
    except DatabaseEarlier as earlier:
        unread.append(f"the shares and recipients of the database are not checked: {earlier}")
    except (OSError, ValueError):
        # A problem of the start.
        pass
    discovered = discovered_state(config, stored)
    state = discovered.state
    try:
        findings = [check_table(state, table) for table in state.catalog.tables()]
        storages = list(check_storages(state, [finding.stage for finding in findings if finding.stage]))
        credentials = list(check_credentials(state))
    finally:
        state.tables.close()
    refused = [
        *refused_rules(config, state.catalog),
        *refused_recipients(config),
        *refused_issuers(config),
        *change_problems(config),
    ]
    troubles = list(start_problems(config, workers=arguments.workers))
    checked = Checked(
        [*discovered.lines()], findings, storages, credentials, refused, troubles, [*unread, *notes(config)]
    )
    # One of the configuration is shared in the place of a stored one of its name.
    is_shared = all(entry.reason == IN_CONFIGURATION for entry in discovered.left_out)
    is_good = checked.is_good and discovered.is_complete and is_shared
    if arguments.json:
        document = checked.document() | {"good": is_good}
        sys.stdout.write(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        checked.write()
    return 0 if is_good else 1


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check has found.

    Attributes:
        discovered: what searches for tables have found and left out.
        tables, storages, credentials: the findings of each.
        refused: grants, recipients, tokens and changes that are refused.
        troubles: what keeps a server from starting.
        notes: what else to know.

    """

    discovered: Sequence[str]
    tables: Sequence[Finding]
    storages: Sequence[StorageFinding]
    credentials: Sequence[CredentialFinding]
    refused: Sequence[str]
    troubles: Sequence[str]
    notes: Sequence[str]

    @property
    def is_good(self) -> bool:
        """Return whether nothing is wrong."""
        findings: tuple[AnyFinding, ...] = (*self.tables, *self.storages, *self.credentials)
        return not (self.refused or self.troubles or any(finding.problem for finding in findings))

    def document(self) -> dict[str, object]:
        """Return the findings for programs."""
        return {
            "discovered": self.discovered,
            "tables": [_row(finding, "stage") for finding in self.tables],
            "storages": [_row(finding) for finding in self.storages],
            "credentials": [_row(finding) for finding in self.credentials],
            "refused": self.refused,
            "startProblems": self.troubles,
            "notes": self.notes,
        }

    def write(self) -> None:
        """Print the findings."""
        write_lines(self.discovered)
        if self.tables:
            write_table([_row(row, "problem", "has_unshared_feed", "stage") for row in self.tables])
        else:
            write_lines(["No table is shared."])
        if self.storages:
            write_table([_row(row, "problem", "advice") for row in self.storages])
        for storage in self.storages:
            write_lines(f"{storage.storage}: {line}" for line in (storage.problem, *storage.advice) if line)
        write_lines(self.refused)
        for credential in self.credentials:
            text = credential.problem or (
                f"temporary credentials read their directory alone, as one of {credential.directory} until "
                f"{credential.ends}"
            )
            write_lines([f"{credential.storage}: {text}"])
        failed = [finding for finding in self.tables if finding.problem]
        write_lines([*self.notes, *unshared_feeds(self.tables)])
        said = {(row.storage, row.problem) for row in self.storages}
        for finding in failed:
            prefix = finding.stage.storage if finding.stage else ""
            # Two storages may fail alike.
            is_said = (prefix, finding.problem) in said
            text = f"see {prefix} above" if is_said else finding.problem
            write_lines([f"{finding.table} cannot be read: {text}"])
        write_lines([f"{len(self.tables) - len(failed)} of {len(self.tables)} tables can be read."])
        write_lines(f"The server would not start: {trouble}" for trouble in self.troubles)


def write_lines(lines: Iterable[str]) -> None:
    """Print lines, which may quote the log of a table: no text of it commands a terminal."""
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)


def unshared_feeds(findings: Iterable[Finding]) -> Iterator[str]:
    """Iterate over lines that name tables whose changes are recorded and not shared."""
    for finding in findings:
        if finding.has_unshared_feed:
            yield (
                f"{finding.table} has a change data feed, which is not shared: `historyShared: true` of the "
                "table shares changes, older versions and streams"
            )


def refused_rules(config: Config, catalog: Catalog | None = None) -> Iterator[str]:
    """Iterate over grants whose conditions the partition columns and values of a table do not decide.

    Every file of the latest version is evaluated. Tables that cannot be read are reported elsewhere. The
    tables are from the `catalog`, or without it from the lists of the configuration.
    """
    state = GatewayState.of(config, catalog=catalog)
    try:
        for recipient in configured_recipients(config):
            for table in state.catalog.tables_of(recipient):
                problem = _refused_rule(state, table)
                if problem is not None:
                    yield f"recipient {recipient.name} cannot read {table.full_name}: {problem}"
    finally:
        state.tables.close()


def _refused_rule(state: GatewayState, table: SharedTable) -> str | None:
    if table.rule is None:
        return None
    if not table.offers_urls:
        return "a grant with a condition gives no directory access, and the table offers no other"
    opened = state.tables.open(table)
    try:
        opened.snapshot().totals(rule=opened.rule)
    except (RuleRefused, InvalidRule) as error:
        return error.detail
    except (LogError, GatewayError):
        return None
    return None


def start_problems(config: Config, *, workers: int = 1) -> Iterable[str]:
    """Iterate over problems that would keep a server from starting, beside its tables. Creates nothing."""
    audit = config.gateway.audit
    if audit is not None and (trouble := AuditLog.trouble(audit.file)) is not None:
        yield f"the audit log {audit.file} cannot be used: {trouble}"
    for look in (
        check_extras,
        check_cache_directory,
        partial(check_memory, workers=workers),
        check_session_policies,
        check_hosts,
        lambda config: listener_context(config.ssl, config.host),
        read_admin_certificate,
        read_recipients,
    ):
        try:
            look(config)
        except (OSError, ValueError) as reason:
            yield str(reason)


def check_hosts(config: Config) -> None:
    """Look whether this machine has the addresses of the listeners. Raises OSError.

    Their ports may belong to the running server: a free one is bound.
    """
    admin = config.gateway.admin
    for key, host in (
        ("host", config.host),
        *(() if admin is None else [("gateway.admin.host", admin.host)]),
    ):
        try:
            for listener in bind(host, 0, 1):
                listener.close()
        except OSError:
            raise OSError(f"{key}: {host} is neither an address of this machine nor a name of one") from None


def read_admin_certificate(config: Config) -> None:
    """Read the certificate of the admin listener, if one is configured. Raises OSError."""
    admin = config.gateway.admin
    if admin is None or admin.ssl is None:
        return
    try:
        listener_context(admin.ssl, admin.host)
    except OSError as reason:
        raise OSError(f"gateway.admin.ssl: {reason}") from None


def read_recipients(config: Config) -> Mapping[str, str]:
    """Read the recipients' database, or what it takes over. Raises OSError and ValueError.

    Returns why recipients with invalid rows are refused, by their keys.
    """
    if not config.has_database:
        return {}
    # A configuration without a database is checked sooner.
    from gateway.database.migration import check_creatable, check_not_taken_over, check_writable  # noqa: PLC0415
    from gateway.governance.stored_recipients import read_once  # noqa: PLC0415

    place = config.database_place
    try:
        try:
            check_writable(place)
            check_followed(place)
            return read_once(place).unreadable
        except DatabaseMissing:
            # The first start makes it.
            check_creatable(place)
        if config.database_source is None:
            return {}
        check_not_taken_over(config.database_source)
        return read_once(DatabasePlace(config.database_source)).unreadable
    except DatabaseEarlier:
        # The first start updates it.
        return {}
    except DatabaseError as reason:
        raise OSError(f"the recipients' database cannot be used: {reason}") from None


def refused_recipients(config: Config) -> Sequence[str]:
    """Return which recipients of the database are refused, and why; nothing if it cannot be read."""
    try:
        refused = read_recipients(config)
    except (OSError, ValueError):
        # A problem of the start.
        return ()
    said = [f"recipient {key!a} of the database is refused: {why}" for key, why in refused.items()]
    if len(said) > MOST_REFUSED:
        return [*said[:MOST_REFUSED], f"{len(said) - MOST_REFUSED} more recipients are refused"]
    return said


def refused_issuers(config: Config) -> Iterator[str]:
    """Iterate over identity providers whose file of keys verifies no token."""
    for issuer in config.gateway.oidc.issuers:
        if issuer.jwks_file is None:
            continue
        # Most configurations have no identity provider.
        from gateway.oidc.identity_token import SigningKeys  # noqa: PLC0415

        try:
            SigningKeys.parse(issuer.jwks_file.read_bytes())
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            yield f"every token of {issuer.issuer} is refused: {issuer.jwks_file} cannot be used: {reason}"


def check(state: GatewayState) -> Iterable[Finding]:
    """Check every table of a configuration, and close the state."""
    try:
        for table in state.catalog.tables():
            yield check_table(state, table)
    finally:
        state.tables.close()


def _row(finding: AnyFinding, *left_out: str) -> dict[str, object]:
    return {
        field.name: getattr(finding, field.name) for field in fields(finding) if field.name not in left_out
    }


def check_table(state: GatewayState, table: SharedTable) -> Finding:
    """Check one table; an error is part of its finding."""
    kind = table.location.kind
    storage = state.config.gateway.storage(table.location).prefix.url
    reached, count = Stage.NOTHING, 0

    def failed(problem: str) -> Finding:
        return Finding(table.full_name, problem=problem, stage=stage())

    def stage() -> TableStage:
        return TableStage(table.location, reached, count, table.full_name, storage)

    try:
        snapshot = state.tables.open(table).snapshot()
        files, size = snapshot.totals()
        reached, count = Stage.READ, files
        adds = signed_files(state, table, snapshot)
        reached = Stage.SIGNED
        if adds:
            fetch(state, table, adds[0]["path"])
        reached = Stage.FETCHED
        fetch_oddly_named(state, table, adds)
        if problem := schema_problem(snapshot):
            return failed(problem)
    except TableNotFound as error:
        if is_projection(state.config, table):
            return failed("it is a projection without a published version; run `delta-gateway project`")
        problem = explain_error(kind, error)
        if problem == str(error):
            problem += f" at {table.location.url}; a location is the directory that contains _delta_log"
        return failed(problem)
    except LogError as error:
        return failed(explain_error(kind, error))
    except (GatewayError, NotReadable, OSError) as error:
        return failed(str(error))
    hot = hot_bytes(table, files, adds)
    return Finding(
        table=table.full_name,
        version=snapshot.version,
        files=files,
        bytes=size,
        hot_bytes=hot,
        cold_bytes=cold_bytes(hot),
        features=", ".join(snapshot.client_reader_features),
        readers=readers(snapshot),
        has_unshared_feed=snapshot.change_data_feed and not table.history_shared,
        stage=stage(),
    )


def is_projection(config: Config, table: SharedTable) -> bool:
    """Return whether a table is a projection that `delta-gateway project` keeps."""
    entries = (entry for _, _, entry in config.tables)
    return any(entry.projection is not None and entry.location == table.location for entry in entries)


def readers(snapshot: Snapshot) -> str:
    """Return the clients that can read a table."""
    needed = {feature.lower() for feature in snapshot.client_reader_features}
    if not snapshot.needs_delta_format:
        return "all"
    able = client_features.readers(needed)
    return ", ".join(able) or "none known"


def signed_files(state: GatewayState, table: SharedTable, snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return the `add` actions of some files, with signed URLs as their paths. Raises LogError."""
    opened = state.tables.open(table)
    store = state.tables.storages.store(table.location)
    options = AnswerOptions(
        opened.signers,
        response_format="delta",
        now_ms=state.now_ms(),
        lifetime_seconds=state.config.pre_signed_url_timeout_seconds,
        max_files=1 if store.signs_by_calls else SAMPLED_FILES,
    )
    chunks = snapshot.files(options)
    lines = [orjson.loads(line) for line in read_whole(chunks).splitlines()]
    return [line["file"]["deltaSingleAction"]["add"] for line in lines if "file" in line]


def fetch(state: GatewayState, table: SharedTable, url: str) -> None:
    """Fetch the first byte of a file by its URL. Raises NotReadable."""
    if table.location.kind == "file":
        _fetch_local(state.tables, state.config, url)
    else:
        _fetch(url, table.location.kind)


def fetch_oddly_named(state: GatewayState, table: SharedTable, adds: Sequence[Mapping[str, Any]]) -> None:
    """Fetch the first file whose path has an empty or a relative part. Raises NotReadable."""
    url = next(
        (add["path"] for add in adds if ODD_PART.search(urllib.parse.urlsplit(add["path"]).path)), None
    )
    if url is None:
        return
    try:
        fetch(state, table, url)
    except NotReadable as error:
        raise NotReadable(
            f"the log names a file by a path with an empty or a relative part ('//', '/./'): {error}; "
            "a writer must add it by its own name"
        ) from None


def _fetch(url: str, kind: str) -> None:
    request = urllib.request.Request(url, headers={"Range": "bytes=0-0"})  # noqa: S310 - signed here
    try:
        try:
            answer: Any = urllib.request.urlopen(request, timeout=FETCH_TIMEOUT_SECONDS)  # noqa: S310
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            body = _first_bytes(answer).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        # urllib wraps the error of a connection.
        reason = getattr(error, "reason", None)
        cause = reason if isinstance(reason, Exception) else error
        raise NotReadable(f"a signed URL cannot be reached ({type(cause).__name__})") from None
    if isinstance(answer, urllib.error.HTTPError):
        headers = answer.headers
        reason = explain(kind, answer.code, body, headers.get("Date"), headers.get("x-ms-error-code"))
        raise NotReadable(f"a signed URL answers {reason}")


def _first_bytes(answer: Any) -> bytes:
    """Read the beginning of an answer, as far as it arrives in time."""
    body, end_seconds = b"", time.monotonic() + FETCH_TIMEOUT_SECONDS
    while len(body) < MAX_ERROR_BYTES and time.monotonic() < end_seconds:
        part = answer.read1(MAX_ERROR_BYTES - len(body))
        if not part:
            break
        body += part
    return body


def _fetch_local(tables: Tables, config: Config, url: str) -> None:
    path = urllib.parse.urlsplit(url).path.removeprefix(urllib.parse.urlsplit(config.public_url).path)
    identity, key = split(path, f"{config.prefix}/files/")
    root = tables.local_root(identity)
    local_file = inside(root, key) if root is not None else None
    if local_file is None:
        raise NotReadable("a data file is missing, or lies outside of the table's directory")
    try:
        with local_file.open() as file:
            file.read(1)
    except OSError as error:
        raise NotReadable(f"a data file cannot be read: {error.strerror}") from None


def schema_problem(snapshot: Snapshot) -> str | None:
    """Return why no client reads a table with its schema; None if it has no such fault."""
    try:
        void = next(_void_columns(orjson.loads(snapshot.schema_string or "")["fields"]), None)
    except (ValueError, KeyError, TypeError):
        return "its schema is not valid"
    if void is None:
        return None
    return f"its column {void!r} has the type void, which no client reads; the provider must drop it"


def _void_columns(fields: Sequence[dict[str, Any]]) -> Iterator[str]:
    for field in fields:
        if _has_void(field["type"]):
            yield field["name"]


def _has_void(data_type: Any) -> bool:
    if not isinstance(data_type, dict):
        return data_type in {"void", "null"}
    inner = [data_type.get(key) for key in ("elementType", "keyType", "valueType")]
    inner += [field["type"] for field in data_type.get("fields", ())]
    return any(_has_void(part) for part in inner)
