"""The last line of an answer."""

from gateway.protocol.parsing import MAX_INT64
from gateway.protocol.response import end_stream_action


def test_the_last_line_holds_what_there_is() -> None:
    line = end_stream_action({"nextPageToken": None, "minUrlExpirationTimestamp": MAX_INT64})
    assert line == b'{"endStreamAction":{"minUrlExpirationTimestamp":9223372036854775807}}\n'
