"""`check` issues a temporary credential for each storage, and finds out what the credential lists."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.aws_identity import ROLE, Sts, running_sts
from support.http_service import Answer, Request, Response, serving

from gateway.__main__ import main
from gateway.cli.check_credentials import CredentialFinding, check_credentials, notes
from gateway.config import loads
from gateway.state import GatewayState

KEYS = {"accessKeyId": "AKIATESTS", "secretAccessKey": "the-long-lived-secret"}
EMPTY = '<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>'
DENIED = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
NOT_FOUND = "<Error><Code>NoSuchBucket</Code><Message>none</Message></Error>"


def settings(location: str, *entries: dict[str, Any], **keys: Any) -> str:
    table = {"name": "t", "location": location, "historyShared": True, "accessModes": ["dir"], **keys}
    volumes = [{"name": "v", "location": f"{location}-volume"}]
    schema = {"name": "d", "tables": [table], "volumes": volumes}
    shares = [{"name": "s", "schemas": [schema]}]
    gateway = {"anonymous": True, "storages": [{"retrySeconds": 0, **entry} for entry in entries]}
    return json.dumps({"version": 1, "shares": shares, "gateway": gateway})


def checked(text: str) -> list[CredentialFinding]:
    state = GatewayState.of(loads(text, environment={}))
    try:
        return list(check_credentials(state))
    finally:
        state.tables.close()


def checked_on_azure(answer: Answer) -> CredentialFinding:
    with serving(answer) as service:
        entry = {
            "prefix": "abfss://data@acct.dfs.core.windows.net/",
            "endpoint": service.url,
            "accountKey": "a2V5",
            "hierarchicalNamespace": True,
        }
        (found,) = checked(settings("abfss://data@acct.dfs.core.windows.net/a b", entry))
    return found


class Bucket:
    """An S3 bucket that answers each listing by its prefix, without regard to keys."""

    def __init__(self, stack: ExitStack, answer: Callable[[str], tuple[int, str]]) -> None:
        self.prefixes: list[str] = []
        self._answer = answer
        sts = stack.enter_context(running_sts(Sts(*KEYS.values())))
        self.sts = sts
        service = stack.enter_context(serving(self.listed))
        self.entry = {
            "prefix": "s3://lake/",
            "region": "us-east-1",
            "pathStyle": True,
            "endpoint": service.url,
            "stsEndpoint": sts.url,
            "directoryRoleArn": ROLE,
            **KEYS,
        }

    def listed(self, request: Request) -> Response:
        prefix = request.query.get("prefix", "")
        self.prefixes.append(prefix)
        status, body = self._answer(prefix)
        return Response(status, body.encode(), {"Content-Type": "application/xml"})


@pytest.mark.parametrize(
    ("below", "at_the_root", "problem"),
    [
        ((200, EMPTY), (403, DENIED), ""),
        ((200, EMPTY), (200, EMPTY), "a temporary credential lists the whole bucket"),
        (
            (403, DENIED),
            (403, DENIED),
            "a temporary credential does not list its directory: the storage denies",
        ),
        ((200, EMPTY), (404, NOT_FOUND), "it is unknown whether a temporary credential reads its directory"),
    ],
)
def test_a_credential_lists_its_directory_and_is_denied_the_root_of_the_bucket(
    below: tuple[int, str],
    at_the_root: tuple[int, str],
    problem: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ExitStack() as stack:
        bucket = Bucket(stack, lambda prefix: below if prefix else at_the_root)
        text = settings("s3://lake/sales/t", bucket.entry)
        # One credential for the table and the volume: they have one entry.
        (found,) = checked(text)
        assert bucket.sts.names == ["check"]
        file = tmp_path / "share.yaml"
        document = json.loads(text)
        # No table, whose log the bucket does not have.
        document["shares"][0]["schemas"][0]["tables"] = []
        file.write_text(json.dumps(document))
        code = main(["check", "-c", str(file)])
        output = capsys.readouterr().out
    assert (found.storage, found.directory) == ("s3://lake/", "s3://lake/sales/t")
    assert found.problem.startswith(problem)
    assert bool(found.problem) == bool(problem)
    assert bucket.prefixes[0] == "sales/t/"
    directory = "s3://lake/sales/t-volume"
    alone = f"temporary credentials read their directory alone, as one of {directory} until "
    assert f"s3://lake/: {found.problem or alone}" in output
    assert code == (1 if problem else 0)
    for secret in (KEYS["secretAccessKey"], *(session.session_token for session in bucket.sts.sessions)):
        assert secret not in output


@pytest.mark.parametrize(
    ("path", "is_named"), [("sales/t-1_2", False), ("ware house/t", True), ("verkäufe/t", True)]
)
def test_a_path_that_deltalake_cannot_sign_is_named(path: str, is_named: bool) -> None:
    role = {"prefix": "s3://lake/", "roleArn": "arn:aws:iam::123456789012:role/r"}
    config = loads(settings(f"s3://lake/{path}", role), environment={})
    found = list(notes(config))
    assert [note.partition(":")[0] for note in found] == (["s.d.t", "the volume s.d.v"] if is_named else [])
    assert all("deltalake" in note for note in found)


def test_a_role_that_cannot_live_as_long_is_found() -> None:
    with ExitStack() as stack:
        bucket = Bucket(stack, lambda _: (200, EMPTY))
        bucket.sts.longest_seconds = 900
        (found,) = checked(settings("s3://lake/sales/t", bucket.entry))
    assert found.problem.startswith("no temporary credential is issued: ")
    assert "ValidationError" in found.problem
    assert not bucket.prefixes


@pytest.mark.parametrize(
    ("statuses", "problem"),
    [
        ((200, 403), ""),
        ((200, 200), "a temporary credential lists the whole bucket"),
        ((403, 403), "a temporary credential does not list its directory: the store answers 403"),
    ],
)
def test_a_signature_of_azure_lists_by_the_interface_of_directories(
    statuses: tuple[int, int], problem: str
) -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Response:
        asked.append(request)
        return Response(statuses["directory" not in request.query], b"{}")

    found = checked_on_azure(answer)
    assert found.problem.startswith(problem)
    assert bool(found.problem) == bool(problem)
    assert asked[0].query["directory"] == "a b"
    assert (asked[0].path, asked[0].query["sr"]) == ("/data", "d")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Response(403, b"no chunk", {"Transfer-Encoding": "chunked"}), "the store cannot be reached"),
        (Response(307, b"", {"Location": "http://127.0.0.1:1/"}), "the store answers 307"),
    ],
)
def test_an_odd_answer_to_a_signature_of_azure_is_a_finding(answer: Response, problem: str) -> None:
    assert problem in checked_on_azure(lambda _: answer).problem


def test_without_directories_nothing_is_issued() -> None:
    text = settings("s3://lake/sales/t", {"prefix": "s3://lake/"}, accessModes=["url"])
    document = json.loads(text)
    del document["shares"][0]["schemas"][0]["volumes"]
    assert checked(json.dumps(document)) == []
