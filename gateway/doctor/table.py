"""Version, metadata and a query of one table, in both response formats.

In: a server and a table. Out: findings, and the first file of each format that the server answers. Formats
are asked for as clients do: the parquet format without capabilities, the delta format with every reader
feature that a client knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal

import orjson

from gateway.doctor import server_errors
from gateway.doctor.connection_errors import SERVER
from gateway.doctor.findings import Findings, Owner, Problem
from gateway.doctor.server import CAPABILITIES, Server
from gateway.doctor.shares import ChosenTable
from gateway.doctor.transport import Answer
from gateway.protocol.client_features import KNOWN_FEATURES, features_text

Format = Literal["parquet", "delta"]
FORMATS: tuple[Format, ...] = ("parquet", "delta")
MAX_HEAD_LINES = 2
# The head, a file, and the end that some servers send.
MAX_QUERY_LINES = 4

# In the delta format it is a property of the table; in the other one servers say it, once the feed is shared.
CHANGE_DATA_FEED = ("delta.enableChangeDataFeed", "enableChangeDataFeed")
FEATURES = ",".join(sorted(KNOWN_FEATURES))
DELTA = f"responseformat=delta;readerfeatures={FEATURES}"
BOTH = f"responseformat=delta,parquet;readerfeatures={FEATURES}"


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A data file of an answer."""

    url: str = field(repr=False)
    size_bytes: int | None
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class FormatResult:
    """The answer of a server for one format: a problem, or perhaps a file."""

    problem: Problem | None = None
    is_refusal: bool = False
    """Whether the server offers the format for other tables, and not for this one."""
    file: SharedFile | None = None
    has_feed: bool = False


def examine_table(server: Server, table: ChosenTable, findings: Findings) -> list[SharedFile]:
    """Read version, metadata and files, and return a file of each format. Raises Problem."""
    version = _version(server, table, findings)
    modes, has_feed = _metadata(server, table, findings)
    if "url" not in modes:
        problem = Problem(
            "the table is shared only by directory access, which the Python and Spark clients cannot read",
            Owner.PROVIDER,
            "add `url` to accessModes of the table for clients that read by URLs",
        )
        findings.warn("query", problem)
        return []
    results = {name: _query(server, table, name) for name in FORMATS}
    is_readable = any(result.problem is None for result in results.values())
    for name, result in results.items():
        step = f"query {name}"
        if result.problem is None:
            findings.ok(step, "a file is listed" if result.file else "the table has no files")
        elif is_readable and result.is_refusal:
            findings.warn(step, result.problem)
        else:
            findings.fail(step, result.problem)
    if has_feed or any(result.has_feed for result in results.values()):
        _changes(server, table, version, findings)
    return [result.file for result in results.values() if result.file]


def _version(server: Server, table: ChosenTable, findings: Findings) -> str:
    """Return the latest version of the table. Raises Problem."""
    answer = server.get(f"{table.name.path}/version", "the version of the table")
    version = answer.headers.get("delta-table-version", "")
    if not version.isdecimal():
        raise Problem(
            f"{SERVER.name} answers without the header Delta-Table-Version, which clients need",
            Owner.PROVIDER,
            "look for a proxy that removes headers, and update the server",
        )
    findings.ok("version", f"{table.name} is at version {version}")
    return version


def _metadata(server: Server, table: ChosenTable, findings: Findings) -> tuple[tuple[str, ...], bool]:
    """Return the access modes of the table, and whether it has a change data feed. Raises Problem."""
    answer = server.get(f"{table.name.path}/metadata", "the metadata of the table", BOTH)
    protocol, metadata = _head(answer, "the metadata of the table")
    able, message = features_text(map(str, _list(protocol.get("readerFeatures"))))
    if able:
        findings.ok("metadata", message)
    else:
        advice = "remove the feature from the table, or share a copy without it; newer clients may read it"
        findings.warn("metadata", Problem(message, Owner.PROVIDER, advice))
    modes = metadata.get("accessModes")
    given = tuple(map(str, modes)) if isinstance(modes, list) and modes else table.access_modes
    return given, _has_feed(metadata)


def _has_feed(metadata: Mapping[str, Any]) -> bool:
    """Return whether the metadata of an answer names a change data feed."""
    configuration = metadata.get("configuration")
    values = map(configuration.get, CHANGE_DATA_FEED) if isinstance(configuration, dict) else ()
    return any(str(value).lower() == "true" for value in values)


def _changes(server: Server, table: ChosenTable, version: str, findings: Findings) -> None:
    """Read the changes of the latest version of a table whose metadata names a change data feed."""
    url = f"{server.endpoint}{table.name.path}/changes?startingVersion={version}"
    answer = server.send("GET", url, capabilities=BOTH, max_lines=MAX_HEAD_LINES)
    if answer.status == HTTPStatus.OK:
        findings.ok("changes", "its changes can be read")
        return
    problem = Problem(
        f"{table.name} has a change data feed, and its changes cannot be read: "
        f"{server_errors.ServerError(answer)}",
        Owner.PROVIDER,
        "share the history of the table (`historyShared: true`) with recipients that read changes",
    )
    findings.warn("changes", problem)


def _query(server: Server, table: ChosenTable, name: Format) -> FormatResult:
    try:
        answer = server.send(
            "POST",
            f"{server.endpoint}{table.name.path}/query",
            capabilities=DELTA if name == "delta" else None,
            body={"limitHint": 1},
            max_lines=MAX_QUERY_LINES,
        )
        if answer.status == 400:  # noqa: PLR2004 - Bad Request
            return FormatResult(_refused_format(answer, name), is_refusal=True)
        request = f"a query in the {name} format"
        server.check(answer, request)
        metadata = _head(answer, request)[1]
        answered = answer.headers.get(CAPABILITIES, "").lower()
        if name == "delta" and "responseformat=delta" not in answered:
            return FormatResult(_old_server(), is_refusal=True)
        file, count = _first_file(answer, name), metadata.get("numFiles")
        if file is None and isinstance(count, int) and count > 0:
            raise _without_files(request)
        return FormatResult(file=file, has_feed=_has_feed(metadata))
    except Problem as problem:
        return FormatResult(problem)


def _refused_format(answer: Answer, name: Format) -> Problem:
    error = server_errors.ServerError(answer)
    if name == "parquet":
        return Problem(
            f"the table has no parquet format: {error}",
            Owner.RECIPIENT,
            "read it in the delta format: recent Python clients do so by themselves, Spark needs the option "
            "responseFormat=delta or a recent client",
        )
    return Problem(
        f"the table has no delta format: {error}",
        Owner.PROVIDER,
        "if the message names a reader feature, remove it from the table; otherwise update the server",
    )


def _without_files(request: str) -> Problem:
    return Problem(
        f"{SERVER.name} answers {request} without a file, and says that the table has some",
        Owner.PROVIDER,
        "look for a proxy that cuts answers, and at the log of the server",
    )


def _old_server() -> Problem:
    return Problem(
        f"{SERVER.name} answers only in the parquet format",
        Owner.PROVIDER,
        "update the server for tables with deletion vectors or column mapping",
    )


def _head(answer: Answer, request: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the protocol and the metadata of an answer, without their wrappers. Raises Problem."""
    try:
        lines = answer.lines()
    except (ValueError, orjson.JSONDecodeError):
        lines = []
    if lines and "queryStatus" in lines[0]:
        raise Problem(
            f"{SERVER.name} answers {request} later, although the request does not allow it",
            Owner.PROVIDER,
            "answer at once if a client does not announce asyncquery",
        )
    for line in lines:
        end = line.get("endStreamAction")
        if isinstance(end, dict) and (message := end.get("errorMessage")):
            status = end.get("httpStatusErrorCode") or ""
            raise Problem(
                f"{SERVER.name} ends {request} with the error {status} {message}",
                Owner.PROVIDER,
                "look at the log of the server",
            )
    if [name for line in lines[:MAX_HEAD_LINES] for name in line] != ["protocol", "metaData"]:
        raise Problem(
            f"the answer to {request} does not begin with protocol and metaData",
            Owner.PROVIDER,
            "compare the endpoint with that of a sharing server, and update the server",
        )
    return _inner(lines[0], "protocol", "deltaProtocol"), _inner(lines[1], "metaData", "deltaMetadata")


def _inner(line: Mapping[str, Any], name: str, wrapper: str) -> Mapping[str, Any]:
    """Return the fields of a line, of both formats."""
    outer = line[name] if isinstance(line[name], dict) else {}
    inner = outer.get(wrapper)
    return {**outer, **inner} if isinstance(inner, dict) else outer


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _first_file(answer: Answer, name: Format) -> SharedFile | None:
    for line in answer.lines()[MAX_HEAD_LINES:]:
        wrapped = line.get("file") or line.get("add")
        if isinstance(wrapped, dict):
            return _file(wrapped, name)
    return None


def _file(wrapped: Mapping[str, Any], name: Format) -> SharedFile:
    """Return the file of a line. Raises Problem for one without a URL."""
    action: Any = wrapped
    if name == "delta":
        actions = wrapped.get("deltaSingleAction")
        action = actions.get("add") if isinstance(actions, dict) else None
    url = (action or {}).get("path" if name == "delta" else "url") if isinstance(action, dict) else None
    if not isinstance(url, str):
        raise Problem(
            f"a file of the {name} format has no URL", Owner.PROVIDER, "update the server of the share"
        )
    size, expires = action.get("size"), wrapped.get("expirationTimestamp")
    return SharedFile(
        url, size if isinstance(size, int) else None, expires if isinstance(expires, int) else None
    )
