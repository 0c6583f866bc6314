"""The demo's recipient: reads all tables of a profile through HTTP.

In: a profile. Out: the data files of each of its tables, with the rows that are deleted.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.client.files import FileFetcher, Origin
from gateway.client.pages import Query, ShareClient
from gateway.client.profile import Profile
from gateway.client.server import Server
from gateway.client.table_name import TableName
from gateway.client.transport import HttpError, Transport


@dataclass(frozen=True)
class DataFile:
    """A data file with its partition values, the number of its rows and those that are deleted."""

    content: bytes
    partition_values: Mapping[str, str | None]
    number_of_rows: int
    deleted_rows: frozenset[int]


@dataclass(frozen=True)
class SharedRows:
    """A table as a recipient reads it; `schema` maps columns to Delta's types."""

    name: str
    schema: Mapping[str, str]
    files: tuple[DataFile, ...]

    @property
    def number_of_rows(self) -> int:
        """Return the number of rows that are not deleted."""
        return sum(file.number_of_rows - len(file.deleted_rows) for file in self.files)


def read_profile(profile: Path) -> Iterator[SharedRows]:
    """Return each table of the profile. Raises OSError when the server cannot be read."""
    # The server is on this machine, which a proxy of the environment does not reach.
    transport = Transport(uses_proxies=False)
    loaded = Profile.load(str(profile))
    try:
        for table in Server(loaded, transport).tables():
            yield _read_table(loaded, table, transport)
    except HttpError as error:
        raise OSError(str(error)) from None
    finally:
        transport.close()


def _read_table(profile: Profile, table: TableName, transport: Transport) -> SharedRows:
    query = Query()
    pages = list(ShareClient(profile, table, transport).pages(query))
    listed = [file for page in pages for file in page.files]
    fetcher = FileFetcher(Origin(profile, table, query, pages[0].version), listed, transport=transport)
    files = (
        DataFile(
            fetcher.whole(file),
            file.partition_values or {},
            file.num_records or 0,
            frozenset(fetcher.vector_rows(file)),
        )
        for file in listed
    )
    fields = json.loads(pages[0].head.schema_json)["fields"]
    return SharedRows(str(table), {field["name"]: field["type"] for field in fields}, tuple(files))
