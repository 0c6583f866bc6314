"""The users of a gateway: a class for each kind of client, and the shapes of the load.

Every answer is checked by its lines and digest, not only by its status; a wrong answer is a failure of
locust. Baseline, token and shape are environment variables that `run.py`, the command to use, sets.
"""

import hashlib
import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from answers import Digest, Reader, WrongAnswer
from baseline import PAGE_FILES, TABLE, Baseline
from generators import weight_of
from locust import FastHttpUser, HttpUser, LoadTestShape, between, constant_pacing, task

BASELINE = Baseline.load(Path(os.environ["LOADTEST_BASELINE"]))
TOKEN = os.environ["LOADTEST_TOKEN"]
USERS = int(os.environ.get("LOADTEST_USERS", "50"))
SECONDS = int(os.environ.get("LOADTEST_SECONDS", "60"))
SHAPE = os.environ.get("LOADTEST_SHAPE", "steady")
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": "identity"}
QUERY = f"{TABLE}/query"
PIECE_BYTES = 256 * 1024


@contextmanager
def checked(response: Any) -> Iterator[None]:
    """Record an error in the block as a failure of the request."""
    try:
        yield
    except WrongAnswer as wrong:
        response.failure(str(wrong))
    except Exception as error:
        response.failure(f"{type(error).__name__}: {error}")
        raise


def expect(truth: bool, what: str) -> None:
    """Raise WrongAnswer unless the condition is true."""
    if not truth:
        raise WrongAnswer(what)


def digest(body: bytes) -> tuple[Digest, dict[str, Any]]:
    """Return the digest of an answer and its endStreamAction, which may be empty."""
    reader = Reader()
    reader.feed(body)
    held = reader.finish()
    last = json.loads(reader.last_line or b"{}") if b"endStreamAction" in reader.last_line else {}
    return held, last.get("endStreamAction", {})


class QuickUser(FastHttpUser):
    """A user whose answers are read as a whole."""

    abstract = True
    connection_timeout = 30
    network_timeout = 120

    @contextmanager
    def ask(self, name: str, path: str, body: dict[str, Any] | None = None) -> Iterator[Any]:
        """Send a request whose answer the caller checks."""
        method = "GET" if body is None else "POST"
        with (
            self.client.request(
                method, path, name=name, json=body, headers=HEADERS, catch_response=True
            ) as response,
            checked(response),
        ):
            expect(response.status_code == 200, f"status {response.status_code}")
            yield response


class Discovery(QuickUser):
    """Discovers shares, tables, versions and metadata."""

    weight = weight_of("Discovery")
    wait_time = between(0.3, 1.0)

    @task(4)
    def shares(self) -> None:
        with self.ask("discovery: shares", "/shares") as response:
            found = hashlib.sha256(response.content).hexdigest()
            expect(found == BASELINE.shares_sha256, "other shares than without load")

    @task(2)
    def tables(self) -> None:
        with self.ask("discovery: tables", "/shares/load/all-tables") as response:
            expect([item["name"] for item in response.json()["items"]] == ["events"], "other tables")

    @task(2)
    def version(self) -> None:
        with self.ask("discovery: version", f"{TABLE}/version") as response:
            expect(response.headers["Delta-Table-Version"] == str(BASELINE.version), "another version")

    @task(1)
    def metadata(self) -> None:
        with self.ask("discovery: metadata", f"{TABLE}/metadata") as response:
            lines = [json.loads(line) for line in response.content.splitlines()]
            expect([*lines[0], *lines[1]] == ["protocol", "metaData"], "not protocol and metaData")
            expect(lines[1]["metaData"]["numFiles"] == BASELINE.files, "another number of files")


class SmallQuery(QuickUser):
    """Queries one partition, as a dashboard does."""

    weight = weight_of("SmallQuery")
    wait_time = between(0.3, 1.2)

    @task
    def query(self) -> None:
        wanted = random.choice(BASELINE.small)
        with self.ask("small query", QUERY, wanted.body()) as response:
            digest(response.content)[0].check(Digest(wanted.files, wanted.digest), "small query")


class Pages(QuickUser):
    """Reads the first pages one after the other."""

    weight = weight_of("Pages")
    wait_time = between(1.0, 3.0)

    @task
    def pages(self) -> None:
        body: dict[str, Any] = {"maxFiles": PAGE_FILES}
        for number in range(min(3, len(BASELINE.pages))):
            with self.ask("page", QUERY, body) as response:
                held, end = digest(response.content)
                held.check(BASELINE.page(number), f"page {number}")
            token = end.get("nextPageToken")
            if token is None:
                return
            body = {"maxFiles": PAGE_FILES, "pageToken": token}


class Changes(QuickUser):
    """Reads changes, as a streaming reader does."""

    weight = weight_of("Changes")
    wait_time = between(1.0, 2.0)

    @task
    def changes(self) -> None:
        with self.ask("changes", QUERY, {"startingVersion": BASELINE.changes_from}) as response:
            ids = [
                int(action["id"], 16)
                for line in response.content.splitlines()
                for key, action in json.loads(line).items()
                if key in {"add", "remove", "file"}
            ]
            expected = (BASELINE.changes_files, BASELINE.changes_digest)
            expect((len(ids), sum(ids) % (1 << 128)) == expected, f"{len(ids)} other changes")


class Refresh(QuickUser):
    """Renews its URLs before they expire."""

    weight = weight_of("Refresh")
    wait_time = between(1.0, 3.0)

    @task
    def refresh(self) -> None:
        wanted = random.choice(BASELINE.small)
        expected = Digest(wanted.files, wanted.digest)
        with self.ask("refresh: first", QUERY, wanted.body() | {"includeRefreshToken": True}) as response:
            held, end = digest(response.content)
            held.check(expected, "first answer")
        with self.ask(
            "refresh: again", QUERY, wanted.body() | {"refreshToken": end["refreshToken"]}
        ) as response:
            digest(response.content)[0].check(expected, "refreshed answer")


class WrongToken(QuickUser):
    """Sends a wrong token, which is rejected."""

    weight = weight_of("WrongToken")
    wait_time = between(0.5, 1.5)

    @task
    def knock(self) -> None:
        with (
            self.client.get(
                f"{TABLE}/metadata",
                name="wrong token",
                headers={"Authorization": "Bearer wrong"},
                catch_response=True,
            ) as response,
            checked(response),
        ):
            expect(response.status_code == 401, f"status {response.status_code}")
            expect(response.json()["errorCode"] == "UNAUTHENTICATED", "another error")
            response.success()


class StreamUser(HttpUser):
    """A user whose answers are read as a stream."""

    abstract = True

    @contextmanager
    def stream(self, name: str) -> Iterator[Any]:
        """Query the whole table; the caller reads the answer."""
        with (
            self.client.post(
                QUERY, name=name, json={}, headers=HEADERS, stream=True, catch_response=True, timeout=300
            ) as response,
            checked(response),
        ):
            expect(response.status_code == 200, f"status {response.status_code}")
            yield response


class FullListing(StreamUser):
    """Reads the whole table."""

    weight = weight_of("FullListing")
    wait_time = constant_pacing(20)

    @task
    def everything(self) -> None:
        with self.stream("full listing") as response:
            reader = Reader()
            for piece in response.iter_content(PIECE_BYTES):
                reader.feed(piece)
            reader.finish().check(BASELINE.full, "full listing")


class CutStream(StreamUser):
    """Closes the connection during the answer."""

    weight = weight_of("CutStream")
    wait_time = between(1.0, 3.0)

    @task
    def leave(self) -> None:
        with self.stream("cut stream") as response:
            reader, leave_after = Reader(), random.randint(1, 4) * PIECE_BYTES
            for piece in response.iter_content(PIECE_BYTES):
                reader.feed(piece)
                if reader.size >= leave_after:
                    break
            expect(reader.lines > 2, "no file before the connection was closed")
            response.close()


class SlowReader(StreamUser):
    """Reads 64 KB/s for a while."""

    weight = weight_of("SlowReader")
    wait_time = between(1.0, 2.0)

    @task
    def crawl(self) -> None:
        with self.stream("slow reader") as response:
            reader, end = Reader(), time.monotonic() + 5
            for piece in response.iter_content(16 * 1024):
                reader.feed(piece)
                time.sleep(0.25)
                if time.monotonic() > end:
                    break
            expect(reader.lines > 2, "starved")
            response.close()


class Shape(LoadTestShape):
    """The number of users over time. A spike has a tenth of the users before and after it."""

    def tick(self) -> tuple[int, float] | None:
        """Return the users and the users started per second, or None at the end."""
        passed = self.get_run_time() / SECONDS
        if passed >= 1:
            return None
        if SHAPE == "ramp":
            return max(1, int(USERS * passed)), 50
        if SHAPE == "spike" and not 0.4 <= passed < 0.6:
            return max(1, USERS // 10), USERS
        return USERS, USERS if SHAPE == "spike" else 50
