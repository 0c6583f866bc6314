"""The last line of an answer."""

from gateway.protocol.parsing import MAX_INT64
from gateway.protocol.response import end_stream_action


def test_the_last_line_has_only_the_known_fields() -> None:
    line = end_stream_action({"nextPageToken": None, "minUrlExpirationTimestamp": MAX_INT64})
    assert line == b'{"endStreamAction":{"minUrlExpirationTimestamp":9223372036854775807}}\n'
