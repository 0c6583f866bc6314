"""Findings have no secret, whatever a server writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.doctor.findings import HIDDEN, MAX_TEXT_LENGTH, Findings, Owner, Problem, shown

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"


def test_signed_urls_keep_their_host_alone() -> None:
    text = "see https://user:pw@b.s3.amazonaws.com/private/x?X-Amz-Signature=abc&y=1, and s3://b/private/x."
    assert shown(text) == f"see https://b.s3.amazonaws.com/…, and s3://{HIDDEN}."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "cannot read https://acct.blob.core.windows.net/finance/secret/part-0.parquet",
            "cannot read https://acct.blob.core.windows.net/…",
        ),
        ("read HTTPS://LEARN.example.com/errors/1.", "read HTTPS://LEARN.example.com/…."),
        ('{"u":"https:\\/\\/b.example\\/private\\/x"}', '{"u":"https://b.example/…"}'),
        ("u=20https%3A%2F%2Fb.example%2Fprivate%2Fx", "u=20https://b.example/…"),
        ("at https://share.example.com:8443/private/x", "at https://share.example.com:8443/…"),
        ("at http://share.example.com/private/x", "at http://share.example.com/…"),
        ("at https://share.example.com.evil/private", "at https://share.example.com.evil/…"),
        ("at oss://bucket/private/x and dbfs://x", f"at oss://{HIDDEN} and dbfs://{HIDDEN}"),
        ("see https://b.example/, https://c.example.", "see https://b.example/, https://c.example."),
    ],
)
def test_paths_of_other_hosts_are_hidden(text: str, expected: str) -> None:
    findings = Findings()
    findings.show_paths("https://share.example.com/delta-sharing", "", "not a URL")
    findings.fail("server", Problem(text, Owner.PROVIDER, text))
    assert (findings.items[0].message, findings.items[0].advice) == (expected, expected)


def test_addresses_of_the_profile_and_of_a_token_keep_their_paths() -> None:
    findings = Findings()
    findings.show_paths("https://user@share.example.com/delta-sharing/", "api://share/.default")
    text = "https://Share.example.com/other, api://share/.default, https://share.example.com/x?y=1"
    findings.fail("server", Problem(text, Owner.PROVIDER, "x"))
    assert findings.items[0].message == text.replace("/x?y=1", "/…")


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
