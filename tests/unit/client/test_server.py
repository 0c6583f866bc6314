"""Lists of a server: over all pages, with retries, and never cut short in silence."""

import json
from typing import Any

import pytest
from support.scripted_server import Answers

from gateway.client.profile import Profile
from gateway.client.server import Server
from gateway.client.table_name import TableName
from gateway.client.transport import HttpError, Retries, Transport


def server(answers: Answers) -> Server:
    return Server(Profile(answers.url, "t"), Transport(retries=Retries(attempts=2, sleep=lambda _: None)))


def page(answers: Answers, *names: str, token: Any = None, **fields: str) -> None:
    items = [{"name": name, **fields} for name in names]
    answers.answers.append((200, {}, json.dumps({"items": items, "nextPageToken": token}).encode()))


def test_tables_are_those_of_all_pages_of_all_shares(answers: Answers) -> None:
    page(answers, "a", token="x+/=")
    page(answers, "t", schema="d")
    page(answers, "b/c")
    answers.answers.append((503, {}, b""))
    page(answers, "u", schema="d")
    tables = list(server(answers).tables())
    assert tables == [TableName("a", "d", "t"), TableName("b/c", "d", "u")]
    assert [path for path, _ in answers.requests] == [
        "/shares",
        "/shares/a/all-tables",
        "/shares?pageToken=x%2B%2F%3D",
        *["/shares/b%2Fc/all-tables"] * 2,
    ]


@pytest.mark.parametrize(
    "body",
    [b"[]", b'{"items": [1]}', b'{"items": {}}', b'{"items": [{"name": 1}]}', b"{", b'{"nextPageToken": 5}'],
)
def test_a_body_that_is_no_list_is_an_error_and_not_an_empty_list(answers: Answers, body: bytes) -> None:
    answers.answers.append((200, {}, body))
    with pytest.raises(HttpError, match="not a list of Delta Sharing"):
        list(server(answers).items("/shares"))


def test_pages_that_go_in_circles_are_an_error(answers: Answers) -> None:
    for token in ("x", "y", "x"):
        page(answers, "a", token=token)
    with pytest.raises(HttpError, match="the token of an earlier one"):
        list(server(answers).items("/shares"))
