"""Sessions of botocore with bounded calls, and its errors in words for the operator.

botocore is imported by this module, which is imported when an identity is requested for the first time.
"""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, TypeVar

import botocore.config
import botocore.exceptions
import botocore.httpsession
import botocore.parsers
import botocore.session

from gateway.config.secret import Secret
from gateway.storage.aws.credentials import S3Credentials, configuration_file, credentials_file
from gateway.storage.credentials import CredentialsUnavailable, check_header

T = TypeVar("T")
CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
ATTEMPTS = 2
PROCESS_SECONDS = 60.0

ERRORS = (
    botocore.exceptions.BotoCoreError,
    botocore.exceptions.ClientError,
    botocore.parsers.ResponseParserError,
    subprocess.SubprocessError,
    OSError,
    ValueError,
    KeyError,
)
_CLIENT_ERRORS = range(400, 500)
_PASSING_STATUS = frozenset({408, 425, 429})
_PASSING_CODE = re.compile(
    "Throttl|Expired|TooManyRequests|RequestLimitExceeded|SlowDown|Timeout|TooSkewed|IDPCommunicationError"
    "|BandwidthLimit|PriorRequestNotComplete|TransactionInProgress|EC2Throttled"
)
"""Codes of errors with a status of 4xx that can end without the operator."""
_CLOCK = re.compile("Signature expired|Signature not yet current")
_ADVICE = {
    "AccessDenied": (
        "the role's trust policy must name the identity that assumes it, with the externalId if it asks for "
        "one, and the identity needs sts:AssumeRole"
    ),
    "ExpiredToken": "the credentials that assume the role have ended",
    "ExpiredTokenException": "the token of the identity has ended",
    "InvalidClientTokenId": (
        "the access key does not exist, or is disabled; the keys of another store than AWS need `stsEndpoint`"
    ),
    "PackedPolicyTooLarge": "the policies and tags of the session are too large",
    "RegionDisabledException": "the account has not enabled the token service of the region",
    "RequestExpired": "the clock of this machine differs from the clock of AWS",
    "SignatureDoesNotMatch": "the secret of the access key is wrong, or the clock of this machine",
    "UnauthorizedException": "the sign-on has ended; run `aws sso login`",
}
# Its records of answers and of failed renewals may have keys, and each failure is raised.
logging.getLogger("botocore").setLevel(logging.CRITICAL)


class Session(botocore.session.Session):  # type: ignore[misc]
    """A session of one request for credentials, with the files of an environment."""

    def __init__(
        self,
        environment: Mapping[str, str],
        region: str,
        *,
        profile: str | None = None,
        sts_endpoint: str | None = None,
        dual_stack: bool = False,
        fips: bool = False,
        connections: int = 1,
    ) -> None:
        super().__init__(profile=profile)
        self.set_config_variable("credentials_file", credentials_file(environment))
        self.set_config_variable("config_file", configuration_file(environment))
        self.set_config_variable("region", region)
        self._connections = connections
        self._sts_endpoint = sts_endpoint or environment.get("AWS_ENDPOINT_URL_STS")
        self._hosts = {
            "use_dualstack_endpoint": dual_stack or None,
            "use_fips_endpoint": fips or None,
        }

    def create_client(self, service_name: str, *arguments: Any, **options: Any) -> Any:
        """Make a client with bounded calls."""
        bounded = botocore.config.Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
            max_pool_connections=self._connections,
            **({} if self._sts_endpoint else self._hosts),
        )
        given = options.pop("config", None)
        options["config"] = given.merge(bounded) if given is not None else bounded
        if service_name == "sts" and self._sts_endpoint:
            options.setdefault("endpoint_url", self._sts_endpoint)
        return super().create_client(service_name, *arguments, **options)


def requested(service: str, request: Callable[[], T]) -> T:
    """Return the result of a request to a service of AWS. Raises CredentialsUnavailable."""
    try:
        return request()
    except ERRORS as error:
        raise unavailable(service, error) from None


def unavailable(service: str, error: Exception) -> CredentialsUnavailable:
    """Describe an error of botocore, without the text of an answer."""
    if isinstance(error, botocore.exceptions.ClientError):
        return _refused(service, error)
    unreachable = (
        botocore.exceptions.HTTPClientError,
        botocore.exceptions.ConnectionError,
        ConnectionError,
        TimeoutError,
    )
    name = type(error).__name__
    if isinstance(error, unreachable):
        return CredentialsUnavailable(f"{service} cannot be reached ({name})")
    if isinstance(error, botocore.exceptions.ProfileNotFound):
        return CredentialsUnavailable(f"{service}: the profile is in no file", lasting=True)
    if isinstance(error, (botocore.exceptions.SSOError, botocore.exceptions.TokenRetrievalError)):
        return CredentialsUnavailable(f"{service}: the sign-on has ended; run `aws sso login` ({name})")
    advice = ""
    if isinstance(error, botocore.parsers.ResponseParserError):
        # As most stores without sessions answer.
        advice = ": another service may be at its address; look at `stsEndpoint`, then at proxies"
    return CredentialsUnavailable(f"{service} did not answer with keys ({name}){advice}")


def keys_of(answer: Mapping[str, Any], source: str) -> S3Credentials:
    """Return the keys of an answer. Raises KeyError and ValueError."""
    token = answer.get("SessionToken") or answer.get("Token")
    expires = answer["Expiration"]
    access_key_id, secret_access_key = answer["AccessKeyId"], answer["SecretAccessKey"]
    if not all(isinstance(text, str) and text for text in (access_key_id, secret_access_key)):
        raise ValueError("an answer without keys")
    for text, name in ((access_key_id, "AccessKeyId"), (str(token or ""), "SessionToken")):
        check_header(text, f"{name} of {source}")
    return S3Credentials(
        Secret(access_key_id),
        Secret(secret_access_key),
        # Another provider's service may return credentials without a session token.
        Secret(str(token)) if token else None,
        expires if isinstance(expires, datetime) else _time(str(expires)),
        source=source,
    )


def _refused(service: str, error: botocore.exceptions.ClientError) -> CredentialsUnavailable:
    answer: Any = error.response
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", "an error")
    code = str(answer.get("Error", {}).get("Code", ""))
    message = str(answer.get("Error", {}).get("Message", ""))
    name = f" ({code})" if re.fullmatch(r"[A-Za-z.]{1,64}", code) else ""
    advice = _ADVICE.get(code)
    if code == "ValidationError" and "DurationSeconds" in message:
        advice = (
            "the lifetime (sessionSeconds, or temporaryCredentialValiditySeconds for directory access) is "
            "more than the role allows, or more than 3600 where a session of another role assumes it"
        )
    text = f"{service} answers {status}{name}" + (f": {advice}" if advice else "")
    return CredentialsUnavailable(text, lasting=_is_lasting(status, code, message))


def _is_lasting(status: object, code: str, message: str) -> bool:
    """Return whether a repeated request gets the same error."""
    if status == HTTPStatus.NOT_IMPLEMENTED:
        return True
    if status not in _CLIENT_ERRORS or status in _PASSING_STATUS or _PASSING_CODE.search(code):
        return False
    return not _CLOCK.search(message)


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
