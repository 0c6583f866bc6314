"""The scenarios of a run as a table: setting, name, numbers of files, quantities with their units, and how.

`DEFAULT` is what a user gets from README's first share: the log in an object store without checksum files, no
staleness, and the caches of the default configuration. `ON_DISK` adds `gateway.cache.directory`. `LOCAL` has
the settings that separate the gateway from a store: a local log, and the cache off or filled before.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import comparisons
import listings
import local_answers
import small_requests
import under_load
from environment import Bench
from figures import Figure, Measured
from logs import SMALL
from make_log import WRITERS

DEFAULT = "default configuration, log on S3"
ON_DISK = "the same with columns on disk"
LOCAL = "local log, cache off or filled"
SETTINGS = (DEFAULT, ON_DISK, LOCAL)

HUNDRED_THOUSAND, MILLION = 100_000, 1_000_000
LARGE = 0
"""Stands for the number of files that `--large` gives."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One measurement, repeated for tables of several sizes."""

    setting: str
    name: str
    sizes: Sequence[int]
    quantities: Mapping[str, str]
    measure: Callable[[Bench, int], Measured]
    writer: str = ""
    """Who writes the checkpoint."""

    def sizes_of(self, large: int) -> list[int]:
        """Return the numbers of files of a run; `large` is 0 where it has no large table."""
        return [size or large for size in self.sizes if size or large]

    def figures(self, bench: Bench, files: int) -> Iterator[Figure]:
        """Measure a table. Each quantity is one of the table below."""
        for subject, values in self.measure(replace(bench, writer=self.writer), files).items():
            for quantity, value in values.items():
                unit = self.quantities[quantity]
                yield Figure(self.setting, self.name, files, subject, quantity, float(value), unit)


COLD = {"cold CPU per file": "s", "cold time": "s", "cold first byte": "s", "cold peak above idle": "B"}
HOT = {"hot CPU per file": "s", "hot time": "s", "hot first byte": "s", "hot peak above idle": "B"}
MEMORY = {
    "idle memory": "B",
    "kept above idle": "B",
    "after above idle": "B",
    "cold peak beyond kept": "B",
    "hot peak beyond kept": "B",
    "mapped files": "B",
}
COLD_LOCAL = {**COLD, "cold CPU per file, delta format": "s", "cold first byte of the next answer": "s"}
HOT_LOCAL = {
    **HOT,
    "hot CPU per file, delta format": "s",
    "hot CPU per file, portable": "s",
    "hot CPU per file, delta format, portable": "s",
    "hot peak against text and 64 bytes a file": "x",
}
FIRST = {"first byte": "s", "CPU per file": "s", "CPU against hot": "x"}
WORKERS = {**FIRST, "memory of two against one": "x"}
SMALL_QUERY = {
    f"{kind}, {quantity}": unit
    for kind in small_requests.KINDS
    for quantity, unit in {"rate": "/s", "CPU per request": "s", "rate against bare aiohttp": "x"}.items()
}
METADATA = {
    f"{request}, {connection}, CPU": "s"
    for request in ("GET /version", "GET /metadata", "GET /shares")
    for connection in small_requests.CONNECTIONS
}
TIME = {"time": "s", "CPU": "s"}
DAY = {**TIME, "time again": "s", "CPU again": "s", "time later": "s", "CPU later": "s"}
FULL = {**COLD, "cold CPU": "s", **HOT, **MEMORY}
OF_WRITERS: Mapping[str, tuple[Mapping[str, str], Callable[[Bench, int], Measured]]] = {
    name: (quantities, partial(listings.of_new_processes, measure=measure))
    for name, quantities, measure in (
        ("full answer", FULL, listings.full_answer),
        ("limitHint 1, cold", TIME, listings.first_file),
        ("one day, cold", DAY, listings.one_day),
        ("bounds of a column, cold", TIME, listings.by_statistics),
        ("first page of 10,000, cold", TIME, listings.first_page),
    )
}
"""Measured on the checkpoints of each writer."""
STAGES = ("reading and decoding the log", "signing and writing lines", "HTTP and the kernel")

SCENARIOS = (
    Scenario(DEFAULT, "small query", (SMALL,), SMALL_QUERY, small_requests.small_query),
    Scenario(DEFAULT, "table metadata", (HUNDRED_THOUSAND,), METADATA, small_requests.metadata_requests),
    *(
        Scenario(DEFAULT, name, sizes, *OF_WRITERS[name])
        for name, sizes in (
            ("full answer", (SMALL, HUNDRED_THOUSAND, MILLION, LARGE)),
            ("limitHint 1, cold", (MILLION, LARGE)),
            ("one day, cold", (MILLION, LARGE)),
        )
    ),
    *(
        Scenario(DEFAULT, f"{name}, {writer}", (MILLION,), quantities, measure, writer)
        for writer in WRITERS
        for name, (quantities, measure) in OF_WRITERS.items()
    ),
    Scenario(DEFAULT, "first answer after a restart", (MILLION,), FIRST, listings.restart),
    Scenario(DEFAULT, "second worker", (MILLION,), WORKERS, listings.second_worker),
    Scenario(
        ON_DISK,
        "first answer after a restart",
        (MILLION, LARGE),
        FIRST,
        partial(listings.with_columns_on_disk, measure=listings.restart),
    ),
    Scenario(
        ON_DISK,
        "second worker",
        (MILLION,),
        WORKERS,
        partial(listings.with_columns_on_disk, measure=listings.second_worker),
    ),
    Scenario(
        LOCAL,
        "full answer",
        (HUNDRED_THOUSAND, MILLION),
        {**COLD_LOCAL, **HOT_LOCAL},
        local_answers.full_answer,
    ),
    Scenario(LOCAL, "full answer", (LARGE,), COLD_LOCAL, local_answers.large_answer),
    Scenario(LOCAL, "stages", (MILLION,), dict.fromkeys(STAGES, "s"), local_answers.stages),
    Scenario(LOCAL, "threads", (MILLION,), {"time with one thread against two": "x"}, local_answers.threads),
    Scenario(
        LOCAL,
        "one day of an ordered checkpoint",
        (MILLION,),
        {"share of the checkpoint that is read": "%"},
        local_answers.clustered_day,
    ),
    Scenario(
        LOCAL,
        "pages",
        (MILLION,),
        {"cold, last page against first": "x", "hot, last page against first": "x"},
        local_answers.pages,
    ),
    Scenario(
        LOCAL,
        "beside four full listings",
        (MILLION,),
        {"GET /shares, p99": "s", "small query, p99": "s"},
        under_load.beside_listings,
    ),
    Scenario(
        LOCAL,
        "50 slow readers",
        (MILLION,),
        {"memory above idle": "B", "socket buffers": "B"},
        under_load.slow_readers,
    ),
    Scenario(
        LOCAL,
        "hot answer beside a stream",
        (MILLION,),
        {"CPU per file": "s", "CPU per file against bare aiohttp": "x"},
        comparisons.bare_stream,
    ),
    Scenario(
        LOCAL,
        "cold answer beside a list",
        (MILLION,),
        {
            "time": "s",
            "time against deltalake": "x",
            "peak memory": "B",
            "peak memory against deltalake": "x",
        },
        comparisons.deltalake,
    ),
    Scenario(
        LOCAL,
        "decoding and replay",
        (MILLION,),
        {"CPU per file": "s", "CPU per file against delta_kernel": "x"},
        comparisons.delta_kernel,
    ),
)
