"""The order of the steps: the profile, a token, the lists, a table, its files.

In: a profile's path. Out: findings. A step that fails ends those that need it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gateway.client.table_name import TableName
from gateway.doctor import profile as profiles
from gateway.doctor import tokens, vended
from gateway.doctor.files import STEP as FILE_STEP
from gateway.doctor.files import open_file
from gateway.doctor.findings import Findings, Owner, Problem
from gateway.doctor.profile import RecipientProfile, read_profile
from gateway.doctor.server import Server
from gateway.doctor.shares import ChosenTable, choose_table
from gateway.doctor.table import examine_table
from gateway.doctor.transport import Transport, proxy_for
from gateway.doctor.urls import host_in, host_of

STEP = "doctor"
TIMEOUTS_OF_RUN = 10
"""The whole run takes at most this many times the time for one answer."""


@dataclass(frozen=True, slots=True)
class Examination:
    """A profile to examine, perhaps with a table of it."""

    profile: Path
    table: TableName | None
    timeout_seconds: float
    findings: Findings

    def run(self) -> None:
        """Examine the profile and the server. Every error is a finding, but for one of their report."""
        limit_seconds = self.timeout_seconds * TIMEOUTS_OF_RUN
        unreported: list[Exception] = []

        def examine() -> None:
            try:
                self._examine_all()
            except Exception as error:  # noqa: BLE001 - raised below
                unreported.append(error)

        # A slow name server, or headers that trickle in, keep a request beyond its time.
        steps = threading.Thread(target=examine, name="doctor", daemon=True)
        steps.start()
        steps.join(limit_seconds)
        if unreported:
            raise unreported[0]
        if steps.is_alive():
            self.findings.fail(STEP, _too_slow(limit_seconds))
            self.findings.end()

    def _examine_all(self) -> None:
        transport = Transport(self.timeout_seconds, self.findings)
        try:
            self._run(transport)
        except Exception as error:  # noqa: BLE001 - the findings so far are worth more than a traceback
            self.findings.fail(STEP, _defect(error))
        finally:
            transport.close()

    def _run(self, transport: Transport) -> None:
        try:
            profile = read_profile(self.profile, self.findings, datetime.now(UTC))
        except Problem as problem:
            self.findings.fail(profiles.STEP, problem)
            return
        self.findings.show_paths(profile.endpoint, profile.token_endpoint, profile.scope)
        self._report_proxy(profile)
        self._step(tokens.STEP, lambda: self._examine(profile, transport))

    def _examine(self, profile: RecipientProfile, transport: Transport) -> None:
        authorization = tokens.authorize(profile, transport, self.findings)
        server = Server(profile.endpoint, authorization, transport)
        self._step("server", lambda: self._examine_server(server))

    def _examine_server(self, server: Server) -> None:
        table = choose_table(server, self.table, self.findings)
        if table is None:
            return
        self._step("table", lambda: self._examine_urls(server, table))
        if "dir" in table.access_modes:
            self._step(vended.STEP, lambda: vended.examine_directory(server, table, self.findings))

    def _examine_urls(self, server: Server, table: ChosenTable) -> None:
        files = examine_table(server, table, self.findings)
        host = host_of(server.endpoint)
        # One file is enough: both formats sign the same files.
        if files:
            self._step(
                FILE_STEP, lambda: open_file(files[0], server.transport, self.findings, server_host=host)
            )

    def _report_proxy(self, profile: RecipientProfile) -> None:
        if (proxy := proxy_for(profile.endpoint)) is None:
            return
        if host_in(proxy) is None:
            # The first request fails with the reason.
            return
        if not proxy.startswith(("http:", "https:")):
            problem = Problem(
                "the proxy of the environment is neither http nor https",
                Owner.NETWORK,
                "give the address of an http proxy in HTTPS_PROXY; some clients know no other",
            )
            self.findings.warn("proxy", problem)
            return
        self.findings.ok("proxy", f"requests use the proxy {host_of(proxy)} of the environment")

    def _step(self, name: str, run: Callable[[], None]) -> None:
        """Run steps; the first one that fails ends them."""
        try:
            run()
        except Problem as problem:
            self.findings.fail(name, problem)


def _too_slow(limit_seconds: float) -> Problem:
    return Problem(
        f"the examination was ended after {limit_seconds:g} seconds, before its last step",
        Owner.PROVIDER,
        "look at the load of the server; --table lists less, and a larger --timeout waits longer",
    )


def _defect(error: Exception) -> Problem:
    # The text of an error can quote what a server sent.
    return Problem(
        f"the doctor has a defect ({type(error).__name__}), so the following steps are missing",
        Owner.RECIPIENT,
        "update delta-gateway, or report the defect to its authors with these lines",
    )
