"""Runs the doctor on a profile, and checks what no finding may have."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.findings import Examine
from support.sharing_server import SIGNATURE, TOKEN, SharingServer, sharing

from gateway.doctor.examination import Examination
from gateway.doctor.findings import Finding, Findings
from gateway.doctor.profile import split_reference

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _no_network_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def sharing_server() -> Iterator[SharingServer]:
    with sharing() as server:
        yield server


@pytest.fixture
def examine() -> Examine:
    def run(profile: Path | str, timeout_seconds: float = 10.0) -> list[Finding]:
        path, table = split_reference(str(profile))
        findings = Findings()
        Examination(path, table, timeout_seconds, findings).run()
        text = repr(findings.items)
        for secret in (TOKEN, SIGNATURE, "private-directory", "X-Amz-Signature"):
            assert secret not in text
        for finding in findings.items:
            assert bool(finding.owner) == bool(finding.advice) == (finding.status != "ok"), finding
        return findings.items

    return run
