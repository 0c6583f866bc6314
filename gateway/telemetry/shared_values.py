"""The values of a worker's metrics, in memory that its supervisor reads.

In: descriptors of files in memory. Out: in a worker, a class of values for the library; in the supervisor,
the sum over all workers. Counters outlive their worker: the next worker of the slot continues them. Gauges
end with it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prometheus_client import Metric, values
from prometheus_client.mmap_dict import MmapedDict, _read_all_values
from prometheus_client.multiprocess import MultiProcessCollector

from gateway.telemetry.memory_file import memory_file

FIRST_POSITION = 8
"""Of an entry in a file of the library."""
MOST_REMOVED = 1000
"""With more removed values the file is written again."""


class WorkerValues:
    """The files of a worker's slot, as the supervisor has them."""

    def __init__(self) -> None:
        """Raise OSError where no file can be made."""
        self._counters = memory_file("counters")
        self._gauges: int | None = None
        # Pages are made on threads: without the lock one could read a file that is closed meanwhile.
        self._reading = threading.Lock()

    def begin(self) -> tuple[int, int]:
        """Return the descriptors for the next process of the slot. Raises OSError."""
        self.end()
        self._gauges = memory_file("gauges")
        return self._counters, self._gauges

    def end(self) -> None:
        """Forget the gauges of a process that has ended."""
        with self._reading:
            if self._gauges is not None:
                os.close(self._gauges)
                self._gauges = None

    def close(self) -> None:
        self.end()
        os.close(self._counters)

    def contents(self) -> Sequence[bytes]:
        """Return the contents of the current files. Another process writes them, so they are not mapped."""
        with self._reading:
            descriptors = (self._counters,) if self._gauges is None else (self._counters, self._gauges)
            return [os.pread(descriptor, os.fstat(descriptor).st_size, 0) for descriptor in descriptors]


def write_values_to(counters: int, gauges: int) -> None:
    """Make new metrics write their values into files, which this process then owns."""
    values.ValueClass = value_class(counters, gauges)


def value_class(counters: int, gauges: int) -> Any:
    """Return the class of the library's values over two files."""
    # One lock: the library's files are not thread-safe.
    files, lock = (_File(counters), _File(gauges)), threading.Lock()

    class SharedValue:
        """A number in a file."""

        _multiprocess = True

        def __init__(  # noqa: PLR0917 - as the library calls it
            self,
            typ: str,
            metric_name: str,
            name: str,
            labelnames: Sequence[str],
            labelvalues: Sequence[str],
            help_text: str,
            multiprocess_mode: str = "",
            **_others: Any,
        ) -> None:
            labels = dict(zip(labelnames, labelvalues, strict=True))
            self._key = json.dumps([typ, multiprocess_mode, metric_name, name, labels, help_text])
            self._file = files[typ == "gauge"]
            with lock:
                self._value, _ = self._file.read_value(self._key)  # type: ignore[no-untyped-call]

        def inc(self, amount: float) -> None:
            with lock:
                self._value += amount
                self._file.write_value(self._key, self._value, 0.0)

        def set(self, value: float, timestamp: float | None = None) -> None:
            with lock:
                self._value = value
                self._file.write_value(self._key, value, timestamp or 0.0)

        def get(self) -> float:
            return float(self._value)

        @staticmethod
        def close() -> None:
            """Close the files. No value can be written afterwards."""
            for file in files:
                file.close()  # type: ignore[no-untyped-call]

        def get_exemplar(self) -> None:
            """Return nothing."""

    return SharedValue


class _File(MmapedDict):
    """A file of the library, from which values can be removed by setting them to NaN."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)  # type: ignore[no-untyped-call]
        self._removed = 0

    def write_value(self, key: str, value: float, timestamp: float) -> None:
        super().write_value(key, value, timestamp)  # type: ignore[no-untyped-call]
        if value != value:  # noqa: PLR0124 - only NaN differs from itself
            self._removed += 1
            if self._removed > MOST_REMOVED:
                self._write_again()

    def _write_again(self) -> None:
        """Write the present values again, from the beginning of the file."""
        entries = [entry for entry in self.read_all_values() if entry[1] == entry[1]]  # type: ignore[no-untyped-call]
        self._removed = 0
        self._positions.clear()
        self._used = FIRST_POSITION
        for key, value, timestamp in entries:
            super().write_value(key, value, timestamp)  # type: ignore[no-untyped-call]


def merged(workers: Iterable[WorkerValues]) -> dict[str, Metric]:
    """Return the sums over all workers, by name. Raises struct.error, RuntimeError, ValueError.

    A file that a worker is writing may be torn: the caller tries again.
    """
    metrics: dict[str, Metric] = {}
    for index, worker in enumerate(workers):
        for content in worker.contents():
            for key, value, timestamp in _entries(content):
                kind, mode, metric_name, name, labels, help_text = json.loads(key)
                if kind == "gauge" and value != value:  # noqa: PLR0124 - it is removed
                    continue
                metric = metrics.get(metric_name)
                if metric is None:
                    metric = metrics[metric_name] = Metric(metric_name, help_text, kind)
                    metric._multiprocess_mode = mode  # type: ignore[attr-defined] # noqa: SLF001 - of the library's own sum
                worker_label = (("pid", str(index)),) if kind == "gauge" else ()
                metric.add_sample(name, (*sorted(labels.items()), *worker_label), value, timestamp)  # type: ignore[arg-type]
    return metrics


def summed(metrics: dict[str, Metric]) -> Iterable[Metric]:
    """Return the metrics with one sample for the same labels."""
    return MultiProcessCollector._accumulate_metrics(metrics, accumulate=True)  # type: ignore[no-untyped-call,no-any-return] # noqa: SLF001 - as the library does for files on a disk


def _entries(content: bytes) -> Iterator[tuple[str, float, float]]:
    """Iterate over the entries of a file."""
    if not content.strip(b"\0"):
        # The process has not written yet.
        return
    for key, value, timestamp, _ in _read_all_values(content):  # type: ignore[no-untyped-call]
        yield key, value, timestamp
