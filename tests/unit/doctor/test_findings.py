"""Findings have no secret, whatever a server writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.doctor.findings import HIDDEN, MAX_TEXT_LENGTH, Findings, Owner, Problem, shown

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"


def test_signed_urls_keep_their_host_alone() -> None:
    text = "see https://user:pw@b.s3.amazonaws.com/private/x?X-Amz-Signature=abc&y=1, and s3://b/private/x."
    assert shown(text) == f"see https://b.s3.amazonaws.com/…, and s3://{HIDDEN}."


def test_documentation_links_stay() -> None:
    assert shown("read https://learn.example.com/errors/1.") == "read https://learn.example.com/errors/1."


def test_tokens_and_signatures_without_a_url_are_hidden() -> None:
    assert shown(f"token {JWT} is old") == f"token {HIDDEN} is old"
    assert shown("query sig=abc%2B&sv=1") == f"query sig={HIDDEN}&sv=1"


def test_control_characters_become_blanks_and_long_texts_are_cut() -> None:
    assert shown("a\x1b[31m\nb\x00") == "a [31m b"
    assert len(shown("x" * 5000)) == MAX_TEXT_LENGTH + 1


@given(st.text(st.characters(categories=["L", "N"]), min_size=6), st.text(), st.text())
def test_a_secret_is_in_no_finding(secret: str, before: str, after: str) -> None:
    findings = Findings()
    findings.hide(secret, None, "x")
    findings.fail("server", Problem(f"{before}{secret}{after}", Owner.PROVIDER, f"x{secret}"))
    clean = findings.items[0].message.replace(HIDDEN, "")
    assert secret not in clean or secret in f"{before}{after}"
    assert secret not in findings.items[0].advice.replace(HIDDEN, "") or secret in HIDDEN
