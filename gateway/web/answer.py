"""An answer to send: native chunks, headers and the last line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from gateway.protocol.headers import NDJSON_CONTENT_TYPE, PRUNING_HEADER
from gateway.protocol.response import ContentCoding, end_stream_action
from gateway.tables.native import NdjsonChunks, PruneCounts, StreamSummary
from gateway.telemetry.request_record import RequestRecord

COUNTED_LATER = "counted=while streaming"


class Answer(Struct, frozen=True):
    """An answer whose body is made by native threads.

    Attributes:
        chunks: the body without its last line.
        headers: of the protocol, without content type and coding.
        content_coding: of the chunks.
        last_line: the fields of the endStreamAction; None if the client did not request that line.
        may_end_in_error: the client reads an error in that line. Others take the answer for complete.
        record: facts of the answer; the counts are added when the body ends.
        considered: the number of files before pruning, where it is known before they are read.
        ended: called with None after the last chunk, or with the error; not called when the client leaves.
        shows_counts: whether the client may know how many files were pruned.
        shared_error: returns an error of the chunks as the client may see it.

    """

    chunks: NdjsonChunks
    headers: Mapping[str, str]
    content_coding: ContentCoding = "identity"
    last_line: Callable[[StreamSummary], Mapping[str, Any]] | None = None
    may_end_in_error: bool = False
    record: RequestRecord = field(default_factory=RequestRecord)
    considered: int | None = None
    ended: Callable[[BaseException | None], None] = lambda _error: None
    shows_counts: bool = True
    shared_error: Callable[[Exception], Exception] = lambda error: error

    def tail(self) -> bytes:
        """Return the last line of a complete answer and the end of its coding."""
        line = end_stream_action(self.last_line(self.chunks.summary)) if self.last_line else b""
        return self.chunks.finish(line)

    def response_headers(self, pruning: str) -> dict[str, str]:
        """Return all headers, with the header that counts pruned files."""
        coding = {} if self.content_coding == "identity" else {"Content-Encoding": self.content_coding}
        headers = {"Content-Type": NDJSON_CONTENT_TYPE, "Vary": "Accept-Encoding", **self.headers, **coding}
        return headers | ({PRUNING_HEADER: pruning} if self.shows_counts else {})

    def pruning(self) -> str:
        """Return the counts of a complete answer, for the pruning header."""
        return _pruning(self.chunks.summary.pruning)

    def expected_pruning(self) -> str:
        """Return the counts before the answer is complete; where they are unknown, the log line has them."""
        expected = self.chunks.precount
        if expected is not None:
            return _pruning(expected)
        considered = "" if self.considered is None else f"considered={self.considered}, "
        return f"{considered}{COUNTED_LATER}"

    def count_files(self) -> None:
        """Add the counts of files to the record."""
        summary, record = self.chunks.summary, self.record
        counts = summary.pruning
        record.considered = counts.considered
        record.pruned_by_partition = counts.pruned_by_partition
        record.pruned_by_stats = counts.pruned_by_stats
        record.pruned_by_limit = counts.pruned_by_limit
        record.returned = counts.returned
        record.file_bytes = summary.file_bytes


def _pruning(counts: PruneCounts) -> str:
    return (
        f"considered={counts.considered}, pruned_by_partition={counts.pruned_by_partition}, "
        f"pruned_by_stats={counts.pruned_by_stats}, pruned_by_limit={counts.pruned_by_limit}, "
        f"returned={counts.returned}"
    )
