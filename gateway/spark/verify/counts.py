"""Compares the numbers that a server states of a table with what it lists, and with the rows.

In: a client of the table, and the rows of a version in the table's own log. Out: descriptions of differences.
Listings are counted page by page and not kept.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import chain

from gateway.client.actions import TableHead
from gateway.client.pages import Query, ShareClient
from gateway.spark.verify.files import FileFacts, Part, facts_of


@dataclass(frozen=True)
class Listed:
    """A listing by its numbers. `rows`: live rows; None if the server does not send them for each file.

    `facts`: those of the files in a part.
    """

    head: TableHead
    files: int
    bytes: int
    rows: int | None
    facts: Counter[FileFacts] = field(default_factory=Counter)


def listed(client: ShareClient, query: Query, part: Part) -> Listed:
    """List a version."""
    files = size = 0
    rows: int | None = 0
    facts: Counter[FileFacts] = Counter()
    pages = client.pages(query)
    first = next(pages)
    for page in chain([first], pages):
        for file in page.files:
            files, size = files + 1, size + file.size_bytes
            rows = None if rows is None or file.live_rows is None else rows + file.live_rows
            if part.has(file.size_bytes):
                facts[facts_of(file)] += 1
    return Listed(first.head, files, size, rows, facts)


def count_differences(stated: TableHead, listed: Listed, rows: int) -> list[str]:
    """Describe numbers of a listing that are not those of its files, of the metadata, or of the `rows`."""
    lines = []
    for name, head in (("the metadata", stated), ("the listing", listed.head)):
        for what, number, counted in (
            ("files", head.num_files, listed.files),
            ("bytes", head.size_bytes, listed.bytes),
        ):
            if number is not None and number != counted:
                lines.append(f"{name} states {number} {what}, {counted} are listed")
    for what, one, other in (
        ("files", stated.num_files, listed.head.num_files),
        ("bytes", stated.size_bytes, listed.head.size_bytes),
    ):
        if (one is None) != (other is None):
            lines.append(f"the metadata and the listing do not both state the number of {what}")
    return [*lines, *row_differences("the listing", listed, rows)]


def row_differences(name: str, listed: Listed, rows: int) -> list[str]:
    """Describe a listing whose files have another number of rows than the table."""
    if listed.rows is None or listed.rows == rows:
        return []
    return [f"{name} states {listed.rows} rows, the table has {rows}"]


def limit_differences(listed: Listed, limit: int, whole: Listed) -> list[str]:
    """Describe a listing with a `limitHint` whose files may have fewer rows, where the table has as many."""
    if listed.files >= whole.files or (listed.rows is not None and listed.rows >= limit):
        return []
    rows = "an unknown number of" if listed.rows is None else listed.rows
    return [f"limitHint {limit}: files of {rows} rows are listed"]
