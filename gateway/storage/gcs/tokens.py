"""Tokens of Google's identities, requested by google-auth. No error has the text of an answer."""

from __future__ import annotations

import calendar
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import requests
from google.auth import aws as aws_account
from google.auth import (
    compute_engine,
    exceptions,
    external_account_authorized_user,
    identity_pool,
    impersonated_credentials,
    pluggable,
)
from google.auth.compute_engine import _metadata
from google.auth.transport.requests import Request
from google.oauth2 import credentials as user_credentials
from google.oauth2 import service_account, sts

from gateway.storage.credentials import CredentialsUnavailable, check_header

T = TypeVar("T")
TIMEOUT_SECONDS = 10.0
PING_SECONDS = 2
PINGS = 2
SUPPORTED = (
    "gateway.storages with an HMAC key (accessKeyId and secretAccessKey) or credentialsFile; the file that "
    "GOOGLE_APPLICATION_CREDENTIALS names; the file of `gcloud auth application-default login`; the metadata "
    "server of a machine, a cluster or Cloud Run"
)
READ_SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"
PLATFORM_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
"""Reads, and signs by the service account's key of Google."""
IMPERSONATED_SECONDS = 3600
STS_ENDPOINT = "https://sts.googleapis.com"
GRANT_OF_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a type of tokens
_AWS_SUBJECT = "urn:ietf:params:aws:token-type:aws4_request"
_IMPERSONATION = re.compile(r"(https?://[^/?#]+)/.*/serviceAccounts/([^/:]+):generateAccessToken")
# Its records may have answers, and each failure is raised.
logging.getLogger("google").setLevel(logging.CRITICAL)


class _BoundedRequest(Request):
    """Requests with a time limit. Those by HTTP use no proxy: they are for metadata servers."""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: Any = None,
        headers: Any = None,
        timeout: Any = None,
        **rest: Any,
    ) -> Any:
        limit = min(timeout or TIMEOUT_SECONDS, TIMEOUT_SECONDS)
        return super().__call__(  # type: ignore[no-untyped-call]
            url,
            method=method,
            body=body,
            headers=headers,
            timeout=limit,
            # The body of a request may be a token, which only one host may receive.
            **{"allow_redirects": False, "proxies": {"http": ""}, **rest},
        )


@dataclass
class Tokens:
    """An identity of Google: its tokens, and what signs for it.

    Attributes:
        credentials: the credentials of google-auth.
        source: the identity, for the operator.
        email: the service account that signs; None if the identity can only read.
        private_key: the service account's key, in PEM form, if it is on this machine.
        signer: the credentials whose token signs by a call; None for those that read.
        iam_endpoint: URL of the service that signs.

    """

    credentials: Any
    source: str
    email: str | None = None
    private_key: str | None = field(default=None, repr=False)
    signer: Any = None
    iam_endpoint: str | None = None
    _periods: dict[int, tuple[float, float]] = field(default_factory=dict, init=False)
    """The times of the last request and of the next one, by credentials."""

    def token(self) -> tuple[str, float]:
        """Return the token that reads, with its end in epoch seconds. Blocks.

        Raises CredentialsUnavailable.
        """
        fresh = self._fresh(self.credentials)
        if self.email == "default":
            self.email = self.credentials.service_account_email
        return fresh

    def signing_token(self) -> tuple[str, float] | None:
        """Return the token that signs by a call, as `token`; None if a key is here, or nothing signs."""
        if self.email is None or self.private_key is not None:
            return None
        return self._fresh(self.signer or self.credentials)

    def for_exchange(self) -> Tokens:
        """Return the same identity with tokens that can be exchanged for narrower tokens."""
        if isinstance(self.credentials, service_account.Credentials):
            return replace(self, credentials=self.credentials.with_scopes([PLATFORM_SCOPE]))
        return self

    def impersonating(self, email: str) -> Tokens:
        """Return the identity of a service account whose tokens this one requests."""
        source = self.credentials
        if isinstance(source, service_account.Credentials):
            source = source.with_scopes([PLATFORM_SCOPE])
        if isinstance(source, compute_engine.Credentials):
            # The library would ask the metadata server for it by the proxy.
            universe = _requested(self.source, lambda: _metadata.get_universe_domain(_BoundedRequest()))
            source = source.with_universe_domain(universe)
        target = impersonated_credentials.Credentials(
            source_credentials=source,
            target_principal=email,
            target_scopes=[PLATFORM_SCOPE],
            lifetime=IMPERSONATED_SECONDS,
        )
        return replace(
            self,
            credentials=target,
            source=f"the service account {email}, impersonated by {self.source}",
            email=email,
            private_key=None,
            signer=source,
        )

    def _fresh(self, credentials: Any) -> tuple[str, float]:
        """Return a token; it is requested again when half of its life is over."""
        now = time.time()
        requested_at, renew_at = self._periods.get(id(credentials), (now, now))
        # A token has a lifetime: if the clock has stepped back, it was ahead when the end was computed.
        if not requested_at <= now < renew_at:
            _requested(self.source, lambda: credentials.refresh(_BoundedRequest()))
            self._periods[id(credentials)] = now, now + max(0.0, _end(credentials) - now) / 2
        if not credentials.token:
            raise CredentialsUnavailable(f"{self.source} gives no token")
        return check_header(str(credentials.token), f"the token of {self.source}"), _end(credentials)


def _end(credentials: Any) -> float:
    if credentials.expiry is None:
        return time.time() + IMPERSONATED_SECONDS
    return calendar.timegm(credentials.expiry.timetuple())


def exchanged(token: str, boundary: Mapping[str, Any], endpoint: str | None) -> tuple[str, float | None]:
    """Exchange a token for one with an access boundary; return it with its lifetime in seconds, if known.

    `endpoint` is the URL of the token service; None for Google's. Blocks. Raises CredentialsUnavailable.
    """
    client = sts.Client(f"{(endpoint or STS_ENDPOINT).rstrip('/')}/v1/token")
    answer: Any = _requested(
        "the exchange of the token",
        lambda: client.exchange_token(
            _BoundedRequest(),
            grant_type=GRANT_OF_EXCHANGE,
            subject_token=token,
            subject_token_type=ACCESS_TOKEN,
            requested_token_type=ACCESS_TOKEN,
            additional_options=boundary,
        ),
    )
    answer = answer if isinstance(answer, dict) else {}
    narrowed, seconds = answer.get("access_token"), answer.get("expires_in")
    if not isinstance(narrowed, str) or not narrowed:
        raise CredentialsUnavailable("the exchange of the token gives no token")
    try:
        return narrowed, float(seconds) if seconds else None
    except (TypeError, ValueError):
        raise CredentialsUnavailable("the exchange of the token gives a token without an end") from None


def of_metadata_server() -> Tokens:
    """Return the identity of the machine's metadata server. Raises CredentialsUnavailable without one."""
    # Its absence is noticed early: a request for a token would be repeated for half a minute.
    if not _metadata.ping(_BoundedRequest(), timeout=PING_SECONDS, retry_count=PINGS):
        raise CredentialsUnavailable(
            f"no credentials were found, and there is no metadata server; supported: {SUPPORTED}",
            lasting=True,
        )
    return Tokens(
        compute_engine.Credentials(scopes=[PLATFORM_SCOPE]),
        "the service account of the metadata server",
        email="default",
    )


def of_file(content: Mapping[str, object], file: str) -> Tokens:
    """Return the identity of a file with credentials. Raises ValueError without a part of the file."""
    info = cast("dict[str, Any]", dict(content))
    kind = str(info["type"])
    try:
        return _KINDS[kind](info, file)
    except (exceptions.GoogleAuthError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} has no credentials of the type {kind} ({type(error).__name__})") from None


def _service_account(info: dict[str, Any], file: str) -> Tokens:
    credentials = service_account.Credentials.from_service_account_info(info, scopes=[READ_SCOPE])
    email = str(info["client_email"])
    return Tokens(
        credentials,
        f"the service account {email} of {file}",
        email=email,
        private_key=str(info["private_key"]),
    )


def _authorized_user(info: dict[str, Any], file: str) -> Tokens:
    return Tokens(
        user_credentials.Credentials.from_authorized_user_info(info, scopes=[PLATFORM_SCOPE]),
        f"the user of {file}",
    )


def _external_account(info: dict[str, Any], file: str) -> Tokens:
    if info.get("subject_token_type") == _AWS_SUBJECT:
        kind: Any = aws_account.Credentials
    elif "executable" in (info.get("credential_source") or {}):
        kind = pluggable.Credentials
    else:
        kind = identity_pool.Credentials
    credentials = kind.from_info(info, scopes=[PLATFORM_SCOPE])
    endpoint, email = _impersonated(info)
    return Tokens(credentials, f"the federated identity of {file}", email=email, iam_endpoint=endpoint)


def _external_user(info: dict[str, Any], file: str) -> Tokens:
    credentials = external_account_authorized_user.Credentials.from_info(info, scopes=[PLATFORM_SCOPE])
    return Tokens(credentials, f"the federated user of {file}")


def _impersonated_service_account(info: dict[str, Any], file: str) -> Tokens:
    credentials = impersonated_credentials.Credentials.from_impersonated_service_account_info(
        info, scopes=[PLATFORM_SCOPE]
    )
    endpoint, email = _impersonated(info)
    return Tokens(
        credentials,
        f"the service account {email} that {file} impersonates",
        email=email,
        iam_endpoint=endpoint,
    )


def _impersonated(info: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the URL of the IAM service and the service account that a file names."""
    match = _IMPERSONATION.fullmatch(str(info.get("service_account_impersonation_url", "")))
    return (match[1], match[2]) if match else (None, None)


_KINDS: Mapping[str, Callable[[dict[str, Any], str], Tokens]] = {
    "service_account": _service_account,
    "authorized_user": _authorized_user,
    "external_account": _external_account,
    "external_account_authorized_user": _external_user,
    "impersonated_service_account": _impersonated_service_account,
}


def _requested(source: str, request: Callable[[], T]) -> T:
    try:
        return request()
    except exceptions.TransportError as error:
        raise CredentialsUnavailable(
            f"{source}: the service cannot be reached ({type(error).__name__})"
        ) from None
    except (exceptions.RefreshError, exceptions.OAuthError) as error:
        reason, lasting = _reason(error)
        raise CredentialsUnavailable(f"{source} gives no token: {reason}", lasting=lasting) from None
    except (exceptions.GoogleAuthError, requests.RequestException, OSError, ValueError) as error:
        raise CredentialsUnavailable(f"{source} gives no token ({type(error).__name__})") from None


def _reason(error: exceptions.GoogleAuthError) -> tuple[str, bool]:
    """Return the reason of a refusal in words, and whether a retry cannot help."""
    text = str(error)
    if "invalid_grant" in text and re.search(r"\biat\b", text):
        return "Google answers invalid_grant: the clock of this machine is wrong", False
    known = {
        "invalid_grant": "Google answers invalid_grant: the key was deleted, or its owner is disabled",
        "invalid_client": "Google answers invalid_client: the client does not exist",
        "invalid_target": "Google answers invalid_target: the audience of the federation does not exist",
        "unauthorized_client": "Google answers unauthorized_client: the client may not use the scope",
        "PERMISSION_DENIED": (
            "the IAM service answers 403: the identity needs roles/iam.serviceAccountTokenCreator on the "
            "service account"
        ),
        "NOT_FOUND": "the IAM service answers 404: the service account does not exist",
    }
    for word, reason in known.items():
        if word in text:
            return reason, True
    return "the service is not available" if error.retryable else "it answers with an error", False
