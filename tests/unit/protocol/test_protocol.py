"""What requests say: capabilities, bodies, parameters, timestamps."""

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import GatewayError, InvalidParameter, MalformedRequest, UnsupportedOperation
from gateway.protocol.capabilities import Capabilities, file_id_scheme
from gateway.protocol.parsing import MAX_INT64, parse_timestamp
from gateway.protocol.queries import ChangesQuery, Hints, ListQuery, TableQuery, TimeTravel
from gateway.protocol.response import end_stream_action

PLAIN, MAPPED = (False, ()), (True, ("columnMapping", "deletionVectors"))


@pytest.mark.parametrize(
    ("header", "table", "chosen"),
    [
        (None, PLAIN, "parquet"),
        ("", PLAIN, "parquet"),
        ("responseformat=delta,parquet", PLAIN, "parquet"),
        ("ResponseFormat=PARQUET,DELTA;readerfeatures=ColumnMapping,deletionvectors", PLAIN, "parquet"),
        ("responseformat=delta", PLAIN, "delta"),
        ("responseformat=parquet", PLAIN, "parquet"),
        ("responseformat=delta,avro", PLAIN, "delta"),
        ("responseformat=delta,parquet;readerfeatures=deletionvectors,columnmapping", MAPPED, "delta"),
        (" responseformat = delta ; readerfeatures = deletionVectors , columnMapping,x ", MAPPED, "delta"),
        ("asyncquery=true", PLAIN, "parquet"),
    ],
)
def test_the_format_is_chosen_by_client_and_table(
    header: str | None, table: tuple[bool, tuple[str, ...]], chosen: str
) -> None:
    needs_delta_format, features = table
    capabilities = Capabilities.parse(header)
    assert (
        capabilities.negotiate(needs_delta_format=needs_delta_format, client_reader_features=features)
        == chosen
    )


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (None, "responseformat=delta;readerfeatures=columnmapping,deletionvectors"),
        ("responseformat=parquet", "responseformat=delta;readerfeatures=columnmapping,deletionvectors"),
        ("responseformat=delta", "not announced: columnMapping, deletionVectors"),
        ("responseformat=delta;readerfeatures=deletionvectors", "not announced: columnMapping;"),
    ],
)
def test_what_the_client_lacks_is_named(header: str | None, words: str) -> None:
    with pytest.raises(UnsupportedOperation) as caught:
        Capabilities.parse(header).negotiate(
            needs_delta_format=True, client_reader_features=["columnMapping", "deletionVectors"]
        )
    assert words in str(caught.value)


def test_an_unknown_format_alone_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="parquet, delta"):
        Capabilities.parse("responseformat=avro")


@pytest.mark.parametrize(("header", "asked"), [("includeendstreamaction=TRUE", True), ("x=y", False)])
def test_the_end_stream_action_is_asked_for_by_true(header: str, asked: bool) -> None:
    assert Capabilities.parse(header).include_end_stream_action is asked


@pytest.mark.parametrize(("header", "scheme"), [(None, None), ("Delta", "delta"), (" parquet", "parquet")])
def test_file_id_schemes(header: str | None, scheme: str | None) -> None:
    assert file_id_scheme(header) == scheme


def test_an_unknown_file_id_scheme_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="parquet, delta"):
        file_id_scheme("md5")


@pytest.mark.parametrize("body", [b"", b"  ", b"{}", b'{"unknownField": [1], "limitHint": null}'])
def test_an_empty_body_asks_for_everything(body: bytes) -> None:
    query = TableQuery.parse(body)
    assert not query.at
    assert not query.paging
    assert not query.wants_end_stream_action(Capabilities())


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
        b'{"limitHint": "1"}',
        b'{"limitHint": 1.5}',
        b'{"limitHint": true}',
        b'{"version": 18446744073709551616}',
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
def test_values_outside_of_what_is_accepted(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter):
        TableQuery.parse(orjson.dumps(fields))


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"maxFiles": 1}, True),
        ({"pageToken": "x"}, True),
        ({"refreshToken": "x"}, True),
        ({"limitHint": 1}, False),
    ],
)
def test_the_last_line_is_sent_when_asked_for(fields: dict[str, object], wanted: bool) -> None:
    assert TableQuery.parse(orjson.dumps(fields)).wants_end_stream_action(Capabilities()) is wanted


def test_page_size_and_tokens_do_not_change_what_a_page_token_binds() -> None:
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


def test_metadata_takes_one_of_version_and_timestamp() -> None:
    assert TimeTravel.parse({"version": "3"}) == TimeTravel(3, None)
    assert not TimeTravel.parse({})
    with pytest.raises(InvalidParameter):
        TimeTravel.parse({"version": "3", "timestamp": "2022-01-01T00:00:00Z"})


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("2022-01-01T00:00:00Z", "2022-01-01T00:00:00+00:00"),
        ("2022-01-01T00:00:00.5Z", "2022-01-01T00:00:00.500+00:00"),
        ("2022-01-01T00:00:00.123999Z", "2022-01-01T00:00:00.123+00:00"),
        ("2022-01-01T02:30:00+02:30", "2022-01-01T00:00:00+00:00"),
        ("2022-01-01T00:00:00-0100", "2022-01-01T01:00:00+00:00"),
        ("2022-01-01 00:00:00", "2022-01-01T00:00:00+00:00"),
        ("2022-1-1 00:00:00.25", "2022-01-01T00:00:00.250+00:00"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999+00:00"),
        ("2024-01-02T00:00Z", "2024-01-02T00:00:00+00:00"),
        ("2024-01-02T23:59", "2024-01-02T23:59:00+00:00"),
        ("2024-01-02 07:30+01", "2024-01-02T06:30:00+00:00"),
        ("2024-01-02", "2024-01-02T00:00:00+00:00"),
        ("20240102", "2024-01-02T00:00:00+00:00"),
        ("20240102T000000Z", "2024-01-02T00:00:00+00:00"),
        ("20240102T0130Z", "2024-01-02T01:30:00+00:00"),
        ("20240102T000000.25+0230", "2024-01-01T21:30:00.250+00:00"),
        ("2024-01-02t00:00:00z", "2024-01-02T00:00:00+00:00"),
        ("2024-01-02T00:00:00+18:00", "2024-01-01T06:00:00+00:00"),
    ],
)
def test_timestamps_are_read_as_utc(text: str, same_as: str) -> None:
    assert parse_timestamp(text) == round(datetime.fromisoformat(same_as).timestamp() * 1000)


@pytest.mark.parametrize(
    "text",
    [
        "\u0662\u0660\u0662\u0664-01-02T00:00:00Z",
        "\uff12\uff10\uff12\uff14\uff10\uff11\uff10\uff12",
        "2024-01-02T00:00:00+99:99",
        "2024-01-02T00:00:00+18:01",
        "2024-01-02T00:00:00-19:00",
        "2024-01-02T00:00:00+01:60",
        "2024-01-02T24:00:00Z",
        "2024-01-02T00:60Z",
        "2024-02-30",
        "2024-01-02Z",
        "2024-01-02T",
        "2024-01-02T00Z",
        "20240102 000000",
        "2024-0102T00:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "1704153600",
    ],
)
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        parse_timestamp(text)
    with pytest.raises(InvalidParameter, match="timestamp is a timestamp in UTC"):
        TimeTravel.parse({"timestamp": text})


@pytest.mark.parametrize(
    ("fraction", "down", "up"),
    [("", 0, 0), (".5", 500, 500), (".123", 123, 123), (".1230000", 123, 123), (".123000001", 123, 124)],
)
def test_what_is_finer_than_a_millisecond_rounds_up_where_at_or_after_is_asked(
    fraction: str, down: int, up: int
) -> None:
    text = f"1970-01-01T00:00:00{fraction}Z"
    assert TimeTravel.parse({"timestamp": text}).timestamp_ms == down
    changes = ChangesQuery.parse({"startingTimestamp": text, "endingTimestamp": text})
    assert (changes.starting_timestamp_ms, changes.ending_timestamp_ms) == (up, down)


@given(
    st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1)),  # noqa: DTZ001 - zone added below
    st.integers(-14 * 60, 14 * 60),
)
def test_timestamps_agree_with_datetime(moment: datetime, offset_minutes: int) -> None:
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    expected = (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert parse_timestamp(zoned.isoformat()) == expected


@given(st.text())
def test_a_text_is_a_timestamp_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError, OverflowError):
        assert isinstance(parse_timestamp(text), int)


FIELDS = ("version", "timestamp", "limitHint", "predicateHints", "maxFiles", "pageToken", "refreshToken")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3),
)


@given(st.binary() | st.dictionaries(st.sampled_from(FIELDS), JSON).map(orjson.dumps))
def test_any_body_is_read_or_refused_in_our_own_words(body: bytes) -> None:
    with contextlib.suppress(GatewayError):
        TableQuery.parse(body)


@given(st.text())
def test_any_capabilities_header_is_read_or_refused(header: str) -> None:
    with contextlib.suppress(InvalidParameter):
        Capabilities.parse(header)


def test_the_last_line_holds_what_there_is() -> None:
    line = end_stream_action({"nextPageToken": None, "minUrlExpirationTimestamp": MAX_INT64})
    assert line == b'{"endStreamAction":{"minUrlExpirationTimestamp":9223372036854775807}}\n'


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
