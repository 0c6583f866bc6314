"""Samples of the memory, descriptors and CPU of a process and its children."""

import statistics
import threading
import time
from dataclasses import dataclass
from typing import Self

import psutil

EVERY_SECONDS = 0.5


@dataclass(frozen=True)
class Sample:
    """One sample: the sum over the processes."""

    second: float
    resident_bytes: int
    descriptors: int
    cpu_seconds: float


class Sampler:
    """Takes samples in a separate thread until the block ends."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._start = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples")
        self.samples: list[Sample] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def settled(self, seconds: float) -> Sample:
        """Return the medians over the next seconds."""
        start = len(self.samples)
        time.sleep(seconds)
        found = self.samples[start:] or [self._sample()]
        return Sample(
            found[-1].second,
            int(statistics.median(sample.resident_bytes for sample in found)),
            int(statistics.median(sample.descriptors for sample in found)),
            found[-1].cpu_seconds,
        )

    def _run(self) -> None:
        while not self._stop.wait(EVERY_SECONDS):
            self.samples.append(self._sample())

    def _sample(self) -> Sample:
        resident = descriptors = 0
        cpu = 0.0
        for process in [self._process, *self._process.children(recursive=True)]:
            try:
                resident += process.memory_info().rss
                descriptors += process.num_fds()
                times = process.cpu_times()
                cpu += times.user + times.system
            except psutil.Error:
                continue
        return Sample(time.monotonic() - self._start, resident, descriptors, cpu)
