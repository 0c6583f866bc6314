"""Findings of the doctor in tests."""

from collections.abc import Callable

from gateway.doctor.findings import Finding

Examine = Callable[..., list[Finding]]


def steps(findings: list[Finding]) -> list[tuple[str, str]]:
    """The steps with their results."""
    return [(finding.step, str(finding.status)) for finding in findings]


def failed(findings: list[Finding]) -> Finding:
    """The only failure, which is the last step."""
    (found,) = [finding for finding in findings if finding.status == "fail"]
    return found


def warned(findings: list[Finding]) -> Finding:
    """The only warning; nothing failed."""
    (found,) = [finding for finding in findings if finding.status != "ok"]
    assert found.status == "warn", found
    return found
