"""Errors of object stores in words for the operator."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from gateway import _native
from gateway.cli.storage_errors import explain, explain_error


def body(code: str, rest: str = "") -> str:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>hidden</Message>{rest}</Error>"


@pytest.mark.parametrize(
    ("kind", "status", "code", "words"),
    [
        ("s3", 403, "AccessDenied", "the identity has no right; the bucket's owner grants"),
        ("s3", 403, "KMS.DisabledException", "the key that encrypts the file cannot be used"),
        ("s3", 301, "PermanentRedirect", "the bucket is in the region eu-west-9; the operator sets `region`"),
        ("s3", 403, "RequestTimeTooSkewed", "the operator sets the clock"),
        ("s3", 400, "ExpiredToken", "or the URL that they signed, have ended"),
        ("s3", 403, "SignatureDoesNotMatch", "the operator replaces the secret"),
        ("s3", 403, "Unheard", "403 Unheard: the store, or something before it, denies the request"),
        ("azure", 403, "AuthorizationFailure", "a network rule of the account excludes this machine"),
        ("azure", 403, "AuthorizationPermissionMismatch", "grants Storage Blob Data Reader"),
        ("azure", 403, "KeyBasedAuthenticationNotPermitted", "removes accountKey and gives an identity"),
        ("azure", 404, "FilesystemNotFound", "the container does not exist"),
        ("azure", 404, "ResourceNotFound", "the container does not exist"),
        ("azure", 409, "ContainerBeingDeleted", "the container does not exist"),
        ("azure", 409, "BlobBeingRehydrated", "the file is in an archive tier"),
        ("gs", 400, "UserProjectMissing", "the operator sets `userProject`"),
        ("gs", 403, "AccessDenied", "roles/storage.objectViewer"),
        ("gs", 503, "Unheard", "try again later"),
        ("s3", 404, "XAdminUserNotFound", "the access key does not exist"),
        ("s3", 404, "Unheard", "404 Unheard: the store gives no known reason"),
    ],
)
def test_a_code_says_what_it_means_and_who_mends_it(kind: str, status: int, code: str, words: str) -> None:
    explained = str(explain(kind, status, body(code, "<Region>eu-west-9</Region><StringToSign>hidden")))
    assert words in explained
    assert "hidden" not in explained


def test_a_code_that_is_the_status_is_said_once() -> None:
    # Of fake-gcs-server, for an absent bucket.
    assert str(explain("gs", 500, body("500"))).startswith("500: the store, or something before it, ")


def test_the_code_of_azure_is_in_a_header_where_there_is_no_body() -> None:
    named = explain("azure", 404, "", code="ContainerNotFound")
    assert "ContainerNotFound: the container does not exist" in str(named)
    assert str(explain("azure", 404, "", code="<script>")).startswith("404: a data file is missing; ")


@pytest.mark.parametrize(("minutes", "side"), [(20, "behind"), (-20, "ahead of")])
def test_a_clock_that_differs_is_the_first_suspect_of_a_refusal(minutes: int, side: str) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(minutes=minutes))
    explained = str(explain("azure", 403, body("AuthenticationFailed"), date))
    said = f"the clock of this machine is 20 minutes {side} the store's clock; set it by NTP"
    assert explained == f"403 AuthenticationFailed: {said}"
    assert "clock of this machine is" not in str(explain("azure", 404, body("BlobNotFound"), date))


@pytest.mark.parametrize("date", ["", "yesterday", "Mon, 01 Jan 2024 00:00:00 +99999999999999999"])
def test_a_date_that_cannot_be_read_says_nothing_of_the_clock(date: str) -> None:
    assert "clock" not in str(explain("s3", 403, body("AccessDenied"), date))
    assert "20 minutes" not in str(explain("azure", 403, body("AuthenticationFailed"), "no date"))


def test_the_detail_of_an_error_shows_no_answer() -> None:
    error = _native.StorageDenied("the storage denies access")
    error.detail = f"the store answered 403 Forbidden: {body('SignatureDoesNotMatch')}"
    explained = explain_error("s3", error)
    assert explained.startswith(
        "the storage denies access: the store answers 403 SignatureDoesNotMatch: the signature does not fit"
    )
    assert "hidden" not in explained
    error.detail = f"something else {body('')}"
    assert explain_error("s3", error) == "the storage denies access: something else"
    error.detail = "Permission denied (os error 13)"
    assert explain_error("file", error) == "the storage denies access: Permission denied (os error 13)"
