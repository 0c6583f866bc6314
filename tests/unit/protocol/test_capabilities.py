"""Capabilities of a client: the response format, reader features, ids of files."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidParameter, UnsupportedOperation
from gateway.protocol.capabilities import Capabilities, _capabilities, file_id_scheme

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
def test_features_that_the_client_lacks_are_named(header: str | None, words: str) -> None:
    with pytest.raises(UnsupportedOperation) as caught:
        Capabilities.parse(header).negotiate(
            needs_delta_format=True, client_reader_features=["columnMapping", "deletionVectors"]
        )
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (
            ["deletionVectors"],
            (
                "delta-sharing for Python from version 1.1 (its changes with use_delta_format=True from "
                'version 1.3), by Spark with .option("responseFormat", "delta"), or by a client that sends '
            ),
        ),
        (
            ["deletionVectors", "timestampNtz", "v2Checkpoint"],
            "delta-sharing for Python from version 1.3.2 (but not its changes), by Spark",
        ),
        (["variantType"], 'read it by Spark with .option("responseFormat", "delta")'),
    ],
)
def test_the_message_says_which_client_reads_the_table(features: list[str], words: str) -> None:
    with pytest.raises(UnsupportedOperation) as caught:
        Capabilities.parse(None).negotiate(needs_delta_format=True, client_reader_features=features)
    assert words in str(caught.value)


def test_an_unknown_format_alone_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="parquet, delta"):
        Capabilities.parse("responseformat=avro")


@pytest.mark.parametrize(
    ("header", "requested"),
    [
        ("includeendstreamaction=TRUE", True),
        ("includeendstreamaction=true;includeendstreamaction=true", True),
        ("includeendstreamaction=true;includeendstreamaction=false", False),
        ("includeendstreamaction=", False),
        ("x=y", False),
    ],
)
def test_the_end_stream_action_is_requested_by_true(header: str, requested: bool) -> None:
    assert Capabilities.parse(header).include_end_stream_action is requested


def test_a_long_header_is_parsed_and_not_kept() -> None:
    words = ",".join(f"feature{n}" for n in range(400))
    before = _capabilities.cache_info().currsize
    assert len(Capabilities.parse(f"readerfeatures={words}").reader_features) == 400
    assert _capabilities.cache_info().currsize == before
    with pytest.raises(InvalidParameter, match="8190"):
        Capabilities.parse(f"readerfeatures={'a,' * 4096}")


@pytest.mark.parametrize(("header", "scheme"), [(None, None), ("Delta", "delta"), (" parquet", "parquet")])
def test_file_id_schemes(header: str | None, scheme: str | None) -> None:
    assert file_id_scheme(header) == scheme


def test_an_unknown_file_id_scheme_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="parquet, delta"):
        file_id_scheme("md5")


@given(st.text())
def test_any_capabilities_header_is_read_or_refused(header: str) -> None:
    with contextlib.suppress(InvalidParameter):
        Capabilities.parse(header)
