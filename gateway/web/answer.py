"""An answer to send: native chunks, headers and the last line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gateway.protocol.response import NDJSON_CONTENT_TYPE, end_stream_action

if TYPE_CHECKING:
    from gateway.tables.native import NdjsonChunks, PruneCounts, StreamSummary
from gateway.web.content_coding import ContentCoding

PRUNING_HEADER = "delta-sharing-pruning"
COUNTED_LATER = "counted=while streaming"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is to be sent.

    Attributes:
        chunks: the body but for its last line.
        headers: those of the protocol; content type and coding are added here.
        content_coding: that of the chunks.
        last_line: the fields of the endStreamAction; None where the client did not ask for that line.
        facts: for the request's line in the log.
        considered: the files that are chosen from, where that is known before they are read.
        ended: told None when all chunks were made, else what ended them; not told when the client leaves.
        shared_error: what a client may see of an error of the chunks.

    """

    chunks: NdjsonChunks
    headers: Mapping[str, str]
    content_coding: ContentCoding = "identity"
    last_line: Callable[[StreamSummary], Mapping[str, Any]] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    considered: int | None = None
    ended: Callable[[BaseException | None], None] = lambda _error: None
    shared_error: Callable[[Exception], Exception] = lambda error: error

    def ending(self) -> bytes:
        """The last line of a whole answer, and the end of its coding."""
        line = end_stream_action(self.last_line(self.chunks.summary)) if self.last_line else b""
        return self.chunks.finish(line)


def answer_headers(sent: Answer) -> dict[str, str]:
    """Return the headers of an answer, with content type and coding."""
    headers = {"Content-Type": NDJSON_CONTENT_TYPE, "Vary": "Accept-Encoding", **sent.headers}
    if sent.content_coding != "identity":
        headers["Content-Encoding"] = sent.content_coding
    return headers


def pruning_header(counts: PruneCounts) -> str:
    """How files are chosen, told before them."""
    return ", ".join([f"{name}={count}" for name, count in prune_counts(counts).items()])


def expected_pruning_header(sent: Answer) -> str:
    """The same for an answer that is still being made; without foresight the log's line has the counts."""
    foreseen = sent.chunks.foreseen
    if foreseen is not None:
        return pruning_header(foreseen)
    considered = "" if sent.considered is None else f"considered={sent.considered}, "
    return f"{considered}{COUNTED_LATER}"


def prune_counts(counts: PruneCounts) -> dict[str, int]:
    """Return the counts of files by their names in headers and logs."""
    return {
        "considered": counts.considered,
        "pruned_by_partition": counts.pruned_by_partition,
        "pruned_by_stats": counts.pruned_by_stats,
        "pruned_by_limit": counts.pruned_by_limit,
        "returned": counts.returned,
    }
