"""Bodies and parameters of requests: accepted values, and the messages for others."""

import contextlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import GatewayError, InvalidParameter, MalformedRequest
from gateway.protocol.capabilities import Capabilities
from gateway.protocol.queries import ChangesQuery, Hints, ListQuery, TableQuery, TimeTravel


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (b"1e2", 100),
        (b"100.0", 100),
        (b'"100"', 100),
        (b'"1e2"', 100),
        (b'"100.00"', 100),
        (b"0e99", 0),
        (b"-0.0", 0),
        # Not the nearest double.
        (b"9007199254740993.0", 2**53 + 1),
        (b"9.223372036854775807e18", 2**63 - 1),
    ],
)
def test_a_whole_number_is_read_in_every_form_of_json(number: bytes, expected: int) -> None:
    assert TableQuery.parse(b'{"version": %s}' % number).at.version == expected


@pytest.mark.parametrize(
    "number",
    [
        b"1e400",
        b"-1e400",
        b"1e999999999",
        b'"9223372036854775808"',
        b"1e19",
        b"2E+63",
        b"18446744073709551616",
    ],
)
def test_a_number_beyond_64_bits_is_out_of_range(number: bytes) -> None:
    with pytest.raises(InvalidParameter, match="version is an integer of 0 or more"):
        TableQuery.parse(b'{"version": %s}' % number)


@pytest.mark.parametrize("number", [b"1e400", b"1e99999999999999999999", b"-1.5", b"2" * 40])
def test_a_number_of_an_unknown_field_is_ignored(number: bytes) -> None:
    assert TableQuery.parse(b'{"unknown": [%s], "version": 3}' % number).at.version == 3


def test_numbers_of_a_predicate_are_handed_on_exactly() -> None:
    query = TableQuery.parse(b'{"jsonPredicateHints": {"value": 0.10000000000000000001}}')
    assert query.hints.json_predicate == '{"value":0.10000000000000000001}'


@pytest.mark.parametrize("body", [b"", b"  ", b"{}", b'{"unknownField": [1], "limitHint": null}'])
def test_an_empty_body_selects_all_files(body: bytes) -> None:
    query = TableQuery.parse(body)
    assert not query.at
    assert not query.paging
    assert not query.wants_end_stream_action(Capabilities())


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"maxFiles": 1}, True),
        ({"pageToken": "x"}, True),
        ({"refreshToken": "x"}, True),
        ({"limitHint": 1}, False),
    ],
)
def test_the_last_line_is_sent_on_request(fields: dict[str, object], wanted: bool) -> None:
    assert TableQuery.parse(orjson.dumps(fields)).wants_end_stream_action(Capabilities()) is wanted


def test_sparks_body_is_understood() -> None:
    body = orjson.dumps(
        {
            "predicateHints": [],
            "limitHint": 7,
            "jsonPredicateHints": '{"op":"column"}',
            "maxFiles": 100,
            "includeRefreshToken": True,
            "refreshToken": None,
            "idempotency_key": "k",
        }
    )
    query = TableQuery.parse(body)
    assert query.hints.limit == 7
    assert query.hints.json_predicate == '{"op":"column"}'
    assert query.paging.max_files == 100
    assert query.include_refresh_token


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"1",
        b"{",
        b"\xff",
        b'{"limitHint": "1 "}',
        b'{"limitHint": ""}',
        b'{"limitHint": "0x1"}',
        b'{"limitHint": 1e99999999999999999999}',
        b'{"limitHint": 1.5}',
        b'{"limitHint": true}',
        b'{"predicateHints": "a"}',
        b'{"predicateHints": [1]}',
        b'{"jsonPredicateHints": 1}',
        b'{"includeRefreshToken": "true"}',
        b'{"pageToken": 1}',
        b'{"timestamp": 1}',
        b'{"a":' * 101 + b"1" + b"}" * 101,
        b"[" * 900_000,
    ],
)
def test_a_body_that_cannot_be_read_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        TableQuery.parse(body)


@pytest.mark.parametrize("body", ["", "{}", '{"limitHint": 5}'])
def test_a_byte_order_mark_is_ignored(body: str) -> None:
    assert TableQuery.parse(body.encode("utf-8-sig")) == TableQuery.parse(body.encode())


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_body_in_another_encoding_is_refused_by_its_encoding(encoding: str) -> None:
    with pytest.raises(MalformedRequest, match="not JSON in UTF-8"):
        TableQuery.parse('{"predicateHints": ["city = \'Reykjav\u00edk\'"]}'.encode(encoding))


def test_brackets_inside_of_strings_do_not_nest() -> None:
    hint = "[" * 5000 + '\\"{'
    assert TableQuery.parse(orjson.dumps({"predicateHints": [hint]})).hints.predicates == (hint,)


@pytest.mark.parametrize(
    "fields",
    [
        {"version": -1},
        {"startingVersion": -1},
        {"limitHint": -1},
        {"maxFiles": 0},
        {"version": 1, "timestamp": "2022-01-01T00:00:00Z"},
        {"version": 1, "startingVersion": 1},
        {"timestamp": "2022-01-01T00:00:00Z", "startingVersion": 1},
        {"startingVersion": 2, "endingVersion": 1},
        {"timestamp": "yesterday"},
        {"timestamp": "2022-13-01T00:00:00Z"},
        {"includeRefreshToken": True, "version": 1},
        {"includeRefreshToken": True, "timestamp": "2022-01-01T00:00:00Z"},
        {"refreshToken": "x", "startingVersion": 1},
        {"refreshToken": "x", "pageToken": "y"},
    ],
)
def test_values_outside_of_the_accepted_range_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter):
        TableQuery.parse(orjson.dumps(fields))


def test_the_digest_of_a_query_ignores_page_size_and_tokens() -> None:
    first = TableQuery.parse(b'{"maxFiles": 2, "limitHint": 3, "includeRefreshToken": true}')
    following = TableQuery.parse(b'{"maxFiles": 5, "limitHint": 3, "pageToken": "t"}')
    other = TableQuery.parse(b'{"maxFiles": 2, "limitHint": 4}')
    assert first.parameters() == following.parameters() != other.parameters()


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"startingVersion": "0", "startingTimestamp": "2022-01-01T00:00:00Z"},
        {"startingVersion": "0", "endingVersion": "1", "endingTimestamp": "2022-01-01T00:00:00Z"},
        {"startingVersion": "-1"},
        {"startingVersion": "1.0"},
        {"startingVersion": "3", "endingVersion": "2"},
        {"startingVersion": "0", "maxFiles": "0"},
        {"startingTimestamp": ""},
    ],
)
def test_changes_need_one_start_and_at_most_one_end(parameters: dict[str, str]) -> None:
    with pytest.raises(InvalidParameter):
        ChangesQuery.parse(parameters)


@pytest.mark.parametrize(
    ("text", "is_true"),
    [
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("false", False),
        ("", False),
        ("1", False),
        ("yes", False),
    ],
)
def test_a_flag_is_true_in_any_case_and_false_for_anything_else(text: str, is_true: bool) -> None:
    query = ChangesQuery.parse(
        {"startingVersion": "0", "includeHistoricalMetadata": text, "includeHistoricalProtocol": text}
    )
    assert query.include_historical_metadata is query.include_historical_protocol is is_true


@pytest.mark.parametrize("text", ["\u0661", "\uff11", "1_000", "1e3", "0x1"])
def test_integers_are_decimal_ascii_digits(text: str) -> None:
    with pytest.raises(InvalidParameter):
        ListQuery.parse({"maxResults": text})
    with pytest.raises(InvalidParameter):
        TimeTravel.parse({"version": text})


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "", "9" * 30, str(2**31)])
def test_max_results_is_a_small_integer(text: str) -> None:
    with pytest.raises(InvalidParameter):
        ListQuery.parse({"maxResults": text})


@pytest.mark.parametrize("asked", [{}, {"maxResults": "2001"}, {"maxResults": str(2**31 - 1)}])
def test_a_page_of_a_listing_is_bounded(asked: dict[str, str]) -> None:
    assert ListQuery.parse(asked).max_results == 2000


def test_metadata_takes_one_of_version_and_timestamp() -> None:
    assert TimeTravel.parse({"version": "3"}) == TimeTravel(3, None)
    assert not TimeTravel.parse({})
    with pytest.raises(InvalidParameter):
        TimeTravel.parse({"version": "3", "timestamp": "2022-01-01T00:00:00Z"})


@pytest.mark.parametrize(
    ("fraction", "down", "up"),
    [("", 0, 0), (".5", 500, 500), (".123", 123, 123), (".1230000", 123, 123), (".123000001", 123, 124)],
)
def test_fractions_of_a_millisecond_round_up_for_at_or_after(fraction: str, down: int, up: int) -> None:
    text = f"1970-01-01T00:00:00{fraction}Z"
    assert TimeTravel.parse({"timestamp": text}).timestamp_ms == down
    changes = ChangesQuery.parse({"startingTimestamp": text, "endingTimestamp": text})
    assert (changes.starting_timestamp_ms, changes.ending_timestamp_ms) == (up, down)


FIELDS = ("version", "timestamp", "limitHint", "predicateHints", "maxFiles", "pageToken", "refreshToken")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3),
)


@given(st.binary() | st.dictionaries(st.sampled_from(FIELDS), JSON).map(orjson.dumps))
def test_any_body_is_parsed_or_refused_with_a_gateway_error(body: bytes) -> None:
    with contextlib.suppress(GatewayError):
        TableQuery.parse(body)


@pytest.mark.parametrize(
    ("value", "is_read"),
    [
        (b"[" * 99 + b"]" * 99, True),
        (b"[" * 100 + b"]" * 100, False),
        (b"[" + b"[]," * 500 + b"1]", True),
        (b'"' + b"[{" * 500 + b'"', True),
        (b'"\\"' + b"[" * 500 + b'"', True),
        (b"[" * 500, False),
    ],
)
def test_a_body_may_nest_a_hundred_deep_and_strings_do_not_count(value: bytes, is_read: bool) -> None:
    body = b'{"other":' + value + b"}"
    if is_read:
        assert TableQuery.parse(body).hints == Hints()
    else:
        with pytest.raises(MalformedRequest, match="nested deeper"):
            TableQuery.parse(body)


def test_a_page_has_the_same_bounds_in_a_body_and_in_a_query() -> None:
    for most in (1, 2**31, 2**62):
        assert TableQuery.parse(b'{"maxFiles": %d}' % most).paging.max_files == most
        found = ChangesQuery.parse({"startingVersion": "0", "maxFiles": str(most)})
        assert found.paging.max_files == most
