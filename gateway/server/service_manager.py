"""Reports the state of the server to the service manager that started it: systemd's notify protocol.

In: the variables NOTIFY_SOCKET and WATCHDOG_USEC, which systemd sets for a unit with Type=notify. Out: one
datagram for each change of state, and one in each half of the watchdog's time while the event loop runs.
Without the variables nothing is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from gateway.background import alongside

log = logging.getLogger("gateway.serving")

SOCKET_VARIABLE = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE = "WATCHDOG_USEC"
WATCHDOG_PROCESS_VARIABLE = "WATCHDOG_PID"
FULL_QUEUE_SECONDS = 60.0
"""Time for which a change of state waits for a service manager that does not read."""
VARIABLES = (SOCKET_VARIABLE, WATCHDOG_VARIABLE, WATCHDOG_PROCESS_VARIABLE)


@dataclass(frozen=True, slots=True)
class ServiceManager:
    """The service manager of this process.

    Attributes:
        address: address of its socket; None without a service manager.
        watchdog_seconds: time without a report after which it ends the process; None for never.

    """

    address: str | None = None
    watchdog_seconds: float | None = None

    @staticmethod
    def of_environment(environment: Mapping[str, str]) -> ServiceManager:
        """Return the service manager that the variables of this process name."""
        name = environment.get(SOCKET_VARIABLE, "")
        # Linux has two kinds of addresses: absolute paths, and abstract names with a NUL instead of the @.
        address = "\0" + name[1:] if name.startswith("@") else name if name.startswith("/") else None
        return ServiceManager(address, _watchdog_seconds(environment))

    def ready(self) -> None:
        """Report that the server accepts connections."""
        self._send("READY=1")

    def stopping(self) -> None:
        """Report that the server drains."""
        self._send("STOPPING=1")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Report that the configuration is read within the context."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            self._send("READY=1")

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Keep the watchdog quiet within the context, as long as the event loop runs."""
        if self.address is None or self.watchdog_seconds is None:
            yield
            return
        async with alongside(self._report_liveness(self.watchdog_seconds / 2)):
            yield

    async def _report_liveness(self, pause_seconds: float) -> None:
        while True:
            # One that is lost is followed by the next one.
            with suppress(BlockingIOError):
                self._send_within(0, "WATCHDOG=1")
            await asyncio.sleep(pause_seconds)

    def _send(self, state: str) -> None:
        """Send a change of state, on a thread if the service manager has not read the earlier changes."""
        try:
            self._send_within(0, state)
        except BlockingIOError:
            threading.Thread(target=self._send_within, args=(FULL_QUEUE_SECONDS, state), daemon=True).start()

    def _send_within(self, seconds: float, state: str) -> None:
        """Send a state. Raises BlockingIOError if it would take longer than 0 seconds."""
        if self.address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifying:
                notifying.settimeout(seconds)
                notifying.sendto(state.encode(), self.address)
        except BlockingIOError:
            raise
        except OSError as error:
            log.warning("the service manager was not notified: %s", error.strerror or error)


def without_service_manager(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables for a process that does not report to the service manager."""
    return {name: value for name, value in environment.items() if name not in VARIABLES}


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    microseconds, process_id = environment.get(WATCHDOG_VARIABLE), environment.get(WATCHDOG_PROCESS_VARIABLE)
    if not microseconds or not microseconds.isdecimal() or int(microseconds) == 0:
        return None
    is_other = process_id is not None and process_id != str(os.getpid())
    return None if is_other else int(microseconds) / 1_000_000
