"""The protocol client of the source, against a server with prepared answers."""

import json

import pytest
from support.scripted_server import HEAD, Answers, file_line

from gateway.client.actions import UnsupportedTable, parse_file, parse_head
from gateway.client.pages import Query, RawPage
from gateway.client.transport import MALFORMED, HttpError, Transport
from gateway.spark.read.tasks import append_tasks, change_tasks


def marked_page(statistics: str | None, **vector: object) -> RawPage:
    """A page with one file, as the gateway and as another server write its line."""
    add = {"path": "p", "size": 7, "partitionValues": {}}
    add |= {} if statistics is None else {"stats": statistics}
    line = {"file": {"id": "a", "deltaSingleAction": {"add": add | vector}}}
    head = parse_head(HEAD[0]["protocol"], HEAD[1]["metaData"], 1)
    return RawPage(head, (), 1, lines=[json.dumps(line, separators=(",", ":")).encode()])


@pytest.mark.parametrize(
    "statistics",
    [
        "{}",
        "",
        "no JSON",
        json.dumps({"numRecords": 3, "minValues": {"id": '"}', "size": 5, "cardinality": 2}}),
        json.dumps({"maxValues": {'"size":9,"id":"b"': '{"id":"c"}"'}}, separators=(",", ":")),
    ],
)
def test_statistics_are_no_part_of_what_tells_a_page_from_others(statistics: str) -> None:
    plain, stated = marked_page(None), marked_page(statistics)
    assert (stated.mark, stated.sizes()) == (plain.mark, [7])
    # What follows the statistics is.
    vector = {"storageType": "u", "pathOrInlineDv": "ab}", "offset": 1, "sizeInBytes": 9, "cardinality": 2}
    of_two, of_three = (
        marked_page(statistics, deletionVector=vector | {"cardinality": number}) for number in (2, 3)
    )
    assert len({plain.mark, of_two.mark, of_three.mark}) == 3


class TestClient:
    def test_pages_are_followed_with_the_same_query(self, answers: Answers) -> None:
        answers.say(*HEAD, file_line("a"), {"endStreamAction": {"nextPageToken": "n", "refreshToken": "r"}})
        answers.say(*HEAD, file_line("b"), {"endStreamAction": {"nextPageToken": ""}})
        query = Query({"version": 1, "includeRefreshToken": True}, max_files=1)
        pages = list(answers.client().pages(query))
        assert [file.id for page in pages for file in page.files] == ["a", "b"]
        assert pages[0].refresh_token == "r"
        assert json.loads(answers.requests[1][1]) == {"version": 1, "pageToken": "n", "maxFiles": 1}

    def test_pages_that_go_in_circles_are_an_error(self, answers: Answers) -> None:
        for token in ("x", "y", "x"):
            answers.say(*HEAD, file_line("a"), {"endStreamAction": {"nextPageToken": token}})
        with pytest.raises(HttpError, match="the token of an earlier one"):
            list(answers.client().pages(Query()))

    @pytest.mark.parametrize(
        "line",
        [
            5,
            None,
            "endStreamAction",
            {"endStreamAction": "x"},
            {"endStreamAction": {"nextPageToken": 5}},
            {"file": {"url": "x"}},
            {"file": {"id": "a", "deltaSingleAction": {}}},
        ],
    )
    def test_a_line_that_is_not_of_the_protocol_is_an_error(self, answers: Answers, line: object) -> None:
        answers.say(*HEAD, line)
        with pytest.raises(HttpError, match="not follow Delta Sharing"):
            list(answers.client().pages(Query()))

    def test_an_answer_that_is_no_listing_is_requested_once_and_a_cut_one_again(
        self, answers: Answers
    ) -> None:
        answers.say(*HEAD[::-1])
        with pytest.raises(HttpError, match="does not begin") as caught:
            list(answers.client().pages(Query()))
        assert caught.value.status == MALFORMED
        answers.say(HEAD[0])
        answers.say(*HEAD)
        assert len(list(answers.client().pages(Query()))) == 1

    @pytest.mark.parametrize("code", [[503], "503"])
    def test_an_error_has_its_message_whatever_its_code(self, answers: Answers, code: object) -> None:
        for _ in range(3):
            answers.say(*HEAD, {"endStreamAction": {"errorMessage": "lost", "httpStatusErrorCode": code}})
        with pytest.raises(HttpError, match="lost"):
            list(answers.client().pages(Query()))

    def test_a_version_that_is_not_a_number_is_an_error(self, answers: Answers) -> None:
        answers.say(**{"Delta-Table-Version": "x"})
        with pytest.raises(HttpError, match="not a number"):
            answers.client().version()

    def test_an_error_in_the_last_line_is_an_error(self, answers: Answers) -> None:
        for _ in range(3):
            answers.say(*HEAD, {"endStreamAction": {"errorMessage": "lost", "httpStatusErrorCode": 503}})
        with pytest.raises(HttpError, match="lost"):
            list(answers.client().pages(Query()))

    def test_an_answer_without_its_announced_last_line_is_requested_again(self, answers: Answers) -> None:
        announced = {"delta-sharing-capabilities": "responseformat=delta;includeendstreamaction=true"}
        answers.say(*HEAD, file_line("a"), **announced)
        answers.say(*HEAD, file_line("a"), file_line("b"), {"endStreamAction": {}}, **announced)
        (page,) = answers.client().pages(Query())
        assert len(page.files) == 2

    def test_a_cut_body_is_requested_again(self, answers: Answers) -> None:
        answers.say(*HEAD, **{"Content-Length": "1000"})
        answers.say(*HEAD, file_line("a"))
        (page,) = answers.client().pages(Query())
        assert len(page.files) == 1

    def test_a_refusal_is_not_repeated(self, answers: Answers) -> None:
        answers.say({"errorCode": "X", "message": "not yours"}, status=404)
        with pytest.raises(HttpError, match="not yours") as caught:
            answers.client().version()
        assert caught.value.status == 404
        assert len(answers.requests) == 1

    def test_a_request_to_a_busy_server_is_retried(self, answers: Answers) -> None:
        answers.say(status=429, **{"Retry-After": "1"})
        answers.say()
        assert answers.client().version() == 1

    def test_unknown_reader_features_are_refused_by_name(self, answers: Answers) -> None:
        protocol = {"protocol": {"deltaProtocol": {"minReaderVersion": 3, "readerFeatures": ["warpDrive"]}}}
        answers.say(protocol, {"metaData": {"deltaMetadata": {"schemaString": "{}"}}})
        with pytest.raises(UnsupportedTable, match="warpDrive"):
            list(answers.client().pages(Query()))

    def test_signed_urls_are_not_shown(self, answers: Answers) -> None:
        answers.say(*HEAD, file_line("a"))
        (page,) = answers.client().pages(Query())
        assert "secret" not in repr(page)
        answers.say(status=403)
        with pytest.raises(HttpError) as caught:
            Transport().fetch(f"{answers.url}/f?signature=secret")
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("fields", [{}, {"size": None, "partitionValues": None}])
def test_a_removed_file_of_unknown_size_is_refused_where_its_rows_are_needed(fields: dict[str, None]) -> None:
    remove = {"path": "http://h/f", "dataChange": True, **fields}
    removed = parse_file({"file": {"id": "f", "version": 1, "deltaSingleAction": {"remove": remove}}})
    added = parse_file(
        {
            "file": {
                "id": "g",
                "version": 2,
                "deltaSingleAction": {"add": {"path": "http://h/g", "size": 1, "partitionValues": {}}},
            }
        }
    )
    assert removed is not None
    assert added is not None
    # A stream that leaves such versions out goes on behind them.
    assert [
        one.file for one in append_tasks([removed, added], ignore_deletes=False, skip_change_commits=True)
    ] == [added]
    with pytest.raises(UnsupportedTable, match="does not say the size"):
        list(change_tasks([removed, added]))
    assert removed.partition_values is None
