"""Rules of grants through HTTP: no URL of a file outside of the rule is signed, and none inside is missing.

Each example is a table, a rule and at least 21 requests. `RULE_EXAMPLES` sets the number of examples:
`RULE_EXAMPLES=4800 pytest tests/properties/test_rules.py` makes over 100,000 requests, without a timeout.
"""

import asyncio
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support import drawn_rules, reference
from support.drawn_rules import Drawn, RuledLog
from support.gateway_app import TOKENS, bearer, serve
from support.history_table import TABLE, Client

from gateway.authentication.credential_table import token_hash
from gateway.config import loads
from gateway.state import GatewayState

CI_EXAMPLES = settings().max_examples * 3 // 5
EXAMPLES = int(os.environ.get("RULE_EXAMPLES", CI_EXAMPLES))
CAPABLE = {
    "delta-sharing-capabilities": "responseformat=delta;readerfeatures=deletionvectors,columnmapping,"
    "timestampntz;includeendstreamaction=true"
}
NUMBER = re.compile(r"f(\d+)\.parquet")
URL = re.compile(rb'"(http://[^"]*)"')
MADE_NOW = re.compile(rb'expires=\d+&signature=\w+|xpirationTimestamp":\d+|"timestamp":\d+')
TOKEN = re.compile(rb'(?<="nextPageToken":")[^"]+')
OTHERS = 150
"""Files outside of the rule that each commit adds."""


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def client(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    text = "gateway: {anonymous: true, tokenKeys: [{id: k1, secret: a secret for the tests}]}"
    client, _ = runner.run(serve(text))
    yield client
    runner.run(client.close())


@dataclass
class Exchange:
    """A recipient's requests for one table; every answer is compared with the rule."""

    client: Client
    drawn: Drawn
    log: RuledLog
    name: str
    is_inside: Callable[[int], bool | None]

    async def answer(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes | None:
        """The body of an answer; None where the rule is undecided for a file of the answer."""
        data = None if body is None else orjson.dumps(body)
        response = await self.client.request(
            method, f"{TABLE}{path}", data=data, headers=bearer(self.name) | CAPABLE
        )
        found = await response.read()
        for url in URL.findall(found):
            number = NUMBER.search(unquote(url.decode()))
            assert number is not None
            assert self.is_inside(int(number[1])) is True, (self.drawn, path, body, url)
        if response.status == 200 and b'"errorMessage"' not in found:
            return found
        assert b"the rule of your grant" in found, found
        is_odd = any(map(self.drawn.is_odd, range(len(self.drawn.files))))
        assert is_odd, (self.drawn, path, body, found)
        return None

    def live(self, version: int) -> list[int]:
        """The files of a version that are inside of the rule, in any order."""
        adds = reference.replay(self.log.root, version).files()
        return sorted(number for number in map(number_of, adds) if self.is_inside(number) is True)

    async def query(self, body: dict[str, Any]) -> tuple[list[int], dict[str, Any]] | None:
        """The numbers of the files and the last line."""
        found = await self.answer("POST", "/query", body)
        if found is None:
            return None
        lines = [orjson.loads(line) for line in found.splitlines()]
        metadata, end = lines[1]["metaData"], lines[-1]["endStreamAction"]
        version = body.get("version", lines[1]["metaData"].get("version", self.log.next_version - 1))
        inside = self.live(version)
        assert (metadata["numFiles"], metadata["size"]) == (len(inside), sum(100 + n for n in inside))
        adds = [line["file"]["deltaSingleAction"]["add"] for line in lines if "file" in line]
        return sorted(map(number_of, adds)), end

    async def run(self) -> None:
        """Requests of every kind. Each answer has exactly the files inside, where nothing else prunes."""
        latest = self.log.next_version - 1
        inside = self.live(latest)
        described = await self.answer("GET", "/metadata")
        assert described is None or json.loads(described.splitlines()[1])["metaData"]["numFiles"] == len(
            inside
        )
        await self.answer("GET", "/version")
        for _ in range(2):
            found = await self.query({})
            assert found is None or found[0] == inside
        for version in {0, latest // 2, latest}:
            found = await self.query({"version": version})
            assert found is None or found[0] == self.live(version)
        await self.hints(inside)
        await self.pages(inside)
        await self.refresh(inside)
        for first in {0, latest // 2, latest}:
            await self.changes(first, latest)

    async def warm(self) -> None:
        """The requests whose answers are kept."""
        latest = self.log.next_version - 1
        await self.answer("GET", "/metadata")
        for body in ({}, {"version": latest}, {"maxFiles": 2}):
            found = await self.query(body)
            assert found is None or "maxFiles" in body or found[0] == self.live(latest)

    async def hints(self, inside: list[int]) -> None:
        found = await self.query({"predicateHints": [self.drawn.hint.sql]})
        if found is not None:
            plain = (n for n in inside if not self.drawn.is_odd(n))
            wanted = {n for n in plain if self.drawn.hint.truth(self.drawn.row(n)) is True}
            assert wanted <= set(found[0]) <= set(inside)
        for limit in (0, 15, 1000):
            found = await self.query({"limitHint": limit})
            assert found is None or len(found[0]) >= min(len(inside), (limit + 9) // 10)

    async def pages(self, inside: list[int]) -> None:
        collected: list[int] = []
        token: dict[str, Any] = {}
        while True:
            found = await self.query({"maxFiles": 2, **token})
            if found is None:
                return
            collected += found[0]
            if "nextPageToken" not in found[1] or found[1]["nextPageToken"] is None:
                break
            token = {"pageToken": found[1]["nextPageToken"]}
        assert sorted(collected) == inside

    async def refresh(self, inside: list[int]) -> None:
        found = await self.query({"includeRefreshToken": True})
        if found is not None:
            again = await self.query({"refreshToken": found[1]["refreshToken"]})
            assert again is not None
            assert again[0] == inside

    async def changes(self, first: int, last: int) -> None:
        for feed in (False, True):
            if feed:
                path = f"/changes?startingVersion={first}&endingVersion={last}"
                found = await self.answer("GET", path)
            else:
                found = await self.answer("POST", "/query", {"startingVersion": first, "endingVersion": last})
            if found is None:
                continue
            lines = [orjson.loads(line) for line in found.splitlines()]
            actions = [
                (line["file"]["version"], kind, number_of(action))
                for line in lines
                if "file" in line
                for kind, action in line["file"]["deltaSingleAction"].items()
            ]
            assert sorted(actions) == sorted(self.expected(first, last, feed=feed)), (self.drawn, first, feed)

    def expected(self, first: int, last: int, *, feed: bool) -> Iterator[tuple[int, str, int]]:
        """The changes of files inside of the rule, from the commits."""
        for version in range(first, last + 1):
            commit = reference.json_lines(self.log.log / f"{version:020}.json")
            actions = [(kind, action) for line in commit for kind, action in line.items()]
            cdc = [(kind, action) for kind, action in actions if kind == "cdc" and feed]
            files = [
                (kind, action)
                for kind, action in actions
                if kind in {"add", "remove"} and action["dataChange"]
            ]
            for kind, action in cdc or files:
                if self.is_inside(number_of(action)) is True:
                    yield version, kind, number_of(action)


def number_of(action: dict[str, Any]) -> int:
    found = NUMBER.search(unquote(action["path"]))
    assert found is not None
    return int(found[1])


def configuration(root: Path, grants: list[Any], properties: dict[str, str]) -> str:
    """Alice has the grants; bob has the whole share."""
    recipients = [
        {
            "name": name,
            "tokens": [{"sha256": token_hash(TOKENS[name]).hex()}],
            "shares": shares,
            "properties": properties,
        }
        for name, shares in (("alice", grants), ("bob", ["s"]))
    ]
    table = {"name": "t", "location": str(root), "historyShared": True}
    return json.dumps(
        {
            "version": 1,
            "shares": [{"name": "s", "schemas": [{"name": "d", "tables": [table]}]}],
            "gateway": {
                "recipients": recipients,
                "tokenKeys": [{"id": "k1", "secret": "a secret for the tests"}],
            },
        },
        ensure_ascii=False,
    )


# All examples are one test: a busy machine needs more than the limit of a test.
# A mark is stronger than the option of the command line.
@pytest.mark.timeout(600 if EXAMPLES == CI_EXAMPLES else 0)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(drawn=drawn_rules.tables(), scopes=st.lists(st.integers(1, 3), min_size=2, max_size=2))
def test_no_url_outside_of_a_rule_is_signed_and_none_inside_is_missing(
    runner: asyncio.Runner, client: Client, drawn: Drawn, scopes: list[int]
) -> None:
    names = {"share": "S", "schema": "d", "table": "T"}
    grants = [
        dict(list(names.items())[:scope]) | {"condition": condition.sql}
        for condition, scope in zip(drawn.conditions, scopes, strict=False)
    ]
    with tempfile.TemporaryDirectory() as directory:
        log = RuledLog(Path(directory) / "table", drawn=drawn)
        for step in drawn.steps:
            log.carry_out(step)
        config = loads(configuration(log.root, grants, drawn.properties))
        pipeline = client.server.pipeline  # type: ignore[attr-defined]
        previous = pipeline.state
        pipeline.state = GatewayState.of(config)
        previous.tables.close()
        ruled = Exchange(client, drawn, log, "alice", drawn.is_inside)
        whole = Exchange(client, drawn, log, "bob", lambda _number: True)
        # Another recipient's answers fill every cache before and between.
        runner.run(whole.warm())
        runner.run(ruled.run())
        runner.run(whole.warm())
        runner.run(ruled.warm())


class InsideAlone(RuledLog):
    """A log of the same commits without the files outside of the rule."""

    def actions(self, added: Mapping[int, Any], removed: set[int], changing: str) -> list[dict[str, Any]]:
        """Those of the files inside."""
        inside = {number for number in {*added, *removed} if self.of.is_inside(number) is True}
        kept = {number: vector for number, vector in added.items() if number in inside}
        return super().actions(kept, removed & inside, changing)


class AmongOthers(RuledLog):
    """A log with many more files outside of the rule."""

    def actions(self, added: Mapping[int, Any], removed: set[int], changing: str) -> list[dict[str, Any]]:
        """Half of the others are before the drawn files."""
        numbers = range(len(self.of.files))
        outside = self.add(next(n for n in numbers if self.of.is_inside(n) is False), None, True)
        others = [{"add": outside | {"path": f"{self.next_version}-{n}.parquet"}} for n in range(OTHERS)]
        drawn = super().actions(added, removed, changing)
        # Beside change files no reader reads an add.
        return drawn if changing == "change files" else others[: OTHERS // 2] + drawn + others[OTHERS // 2 :]


async def learned(client: Client, hint: str, latest: int) -> list[object]:
    """What alice learns by all kinds of requests: the answers but for their times, and lengths of tokens."""
    found: list[object] = []

    async def ask(method: str, path: str, body: dict[str, Any] | None = None, *, pages: bool = False) -> None:
        token = b""
        while True:
            sent = (
                None
                if body is None
                else orjson.dumps(body | ({"pageToken": token.decode()} if token else {}))
            )
            page = f"&pageToken={token.decode()}" if token and body is None else ""
            answer = await client.request(
                method, f"{TABLE}{path}{page}", data=sent, headers=bearer() | CAPABLE
            )
            text = await answer.read()
            lines = sorted(MADE_NOW.sub(b"", text).splitlines())
            token = next(iter(TOKEN.findall(text)), b"")
            # Checkpoints of several files have their rows in another order.
            seen = (len(lines), len(token)) if pages else lines
            found.append((path, body, answer.status, answer.headers.get("Content-Encoding"), seen))
            if not token:
                return

    for path in ("/metadata", "/version", "/changes?startingVersion=0"):
        await ask("GET", path)
    bodies: list[dict[str, Any]] = [{}, {"version": latest // 2}, {"startingVersion": 0}]
    for body in (*bodies, {"predicateHints": [hint]}):
        await ask("POST", "/query", body)
        await ask("POST", "/query", body | {"maxFiles": 1}, pages=True)
    await ask("GET", "/changes?startingVersion=0&maxFiles=1", pages=True)
    return found


@pytest.mark.timeout(600 if EXAMPLES == CI_EXAMPLES else 0)
@settings(max_examples=max(1, EXAMPLES // 4), suppress_health_check=list(HealthCheck))
@given(drawn=drawn_rules.tables())
def test_answers_do_not_depend_on_the_files_outside_of_a_rule(
    runner: asyncio.Runner, client: Client, drawn: Drawn
) -> None:
    inside = [drawn.is_inside(number) for number in range(len(drawn.files))]
    assume(False in inside and not any(map(drawn.is_odd, range(len(drawn.files)))))
    grants = [{"share": "s", "condition": drawn.conditions[0].sql}]
    if len(drawn.conditions) > 1:
        grants.append({"share": "s", "schema": "d", "condition": drawn.conditions[1].sql})
    found = []
    with tempfile.TemporaryDirectory() as directory:
        for kind in (AmongOthers, InsideAlone):
            log = kind(Path(directory) / kind.__name__, drawn=drawn)
            for step in drawn.steps:
                log.carry_out(step)
            pipeline = client.server.pipeline  # type: ignore[attr-defined]
            previous = pipeline.state
            pipeline.state = GatewayState.of(loads(configuration(log.root, grants, drawn.properties)))
            previous.tables.close()
            found.append(runner.run(learned(client, drawn.hint.sql, log.next_version - 1)))
    for among_others, alone in zip(*found, strict=True):
        assert among_others == alone
