"""AWS roles of the machine: credentials that expire within hours, requested over HTTP.

In: the environment. Out: a `Role`, whose `assume` returns credentials with their expiry: of a web identity
(Kubernetes service accounts), of a container (ECS, EKS pod identity), else of the instance (EC2, IMDSv2).
The text of an answer is never in an error, because it may hold credentials.
"""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import orjson

from gateway.config.secret import Secret
from gateway.storage.aws.credentials import S3Credentials

# The instance's service answers within milliseconds, or does not exist.
INSTANCE_TIMEOUT_SECONDS = 1.0
TIMEOUT_SECONDS = 10.0
INSTANCE_TOKEN_SECONDS = 300
MAX_ANSWER_BYTES = 64 * 1024

Send = Callable[[urllib.request.Request, float], bytes]


class CredentialsUnavailable(Exception):
    """Raised when a role gives no credentials. `lasting`: the machine has no role, so a retry cannot help."""

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


@dataclass(frozen=True, slots=True)
class Role:
    """A role that can be assumed."""

    name: str
    """`web identity`, `container` or `instance`."""
    assume: Callable[[], S3Credentials]
    """Requests credentials. Blocks. Raises CredentialsUnavailable."""


def role_of(environment: Mapping[str, str], region: str, send: Send | None = None) -> Role | None:
    """Return the role that an environment names; None if even that of the instance is disabled."""
    send = send or _send
    if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE") and environment.get("AWS_ROLE_ARN"):
        return Role("web identity", lambda: _web_identity(environment, region, send))
    if environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI") or environment.get(
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
    ):
        return Role("container", lambda: _container(environment, send))
    if environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    return Role("instance", lambda: _instance(environment, send))


def _web_identity(environment: Mapping[str, str], region: str, send: Send) -> S3Credentials:
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    form = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": environment["AWS_ROLE_ARN"],
        "RoleSessionName": environment.get("AWS_ROLE_SESSION_NAME", "delta-sharing-gateway"),
        # Read each time: Kubernetes replaces it.
        "WebIdentityToken": _file(environment["AWS_WEB_IDENTITY_TOKEN_FILE"], "AWS_WEB_IDENTITY_TOKEN_FILE"),
    }
    url = environment.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.{domain}"
    answer = _answer(send, url, TIMEOUT_SECONDS, "the token service", data=urlencode(form).encode())

    def element(name: str) -> str:
        found = re.search(rb"<%s>([^<]+)</%s>" % (name.encode(), name.encode()), answer)
        if found is None:
            raise CredentialsUnavailable("the token service did not answer with keys")
        return found.group(1).decode()

    return _keys(
        {name: element(name) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")},
        "SessionToken",
    )


def _container(environment: Mapping[str, str], send: Send) -> S3Credentials:
    relative = environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    url = f"http://169.254.170.2{relative}" if relative else environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    authorization = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    token_file = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    if token_file:
        authorization = _file(token_file, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    headers = {"Authorization": authorization} if authorization else {}
    answer = _answer(send, url, TIMEOUT_SECONDS, "the container's credentials service", headers)
    return _keys(_json(answer, "the container's credentials service"), "Token")


def _instance(environment: Mapping[str, str], send: Send) -> S3Credentials:
    base = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
    service = "the instance's metadata service"

    def get(path: str, headers: Mapping[str, str], method: str = "GET") -> bytes:
        return _answer(
            send, f"{base}/latest/{path}", INSTANCE_TIMEOUT_SECONDS, service, headers, method=method
        )

    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(INSTANCE_TOKEN_SECONDS)}
    headers = {"X-aws-ec2-metadata-token": get("api/token", lifetime, "PUT").decode("ascii", "replace")}
    roles = get("meta-data/iam/security-credentials/", headers).decode("ascii", "replace").split()
    if not roles:
        raise CredentialsUnavailable("the instance has no role", lasting=True)
    return _keys(_json(get(f"meta-data/iam/security-credentials/{roles[0]}", headers), service), "Token")


def _answer(
    send: Send,
    url: str,
    timeout_seconds: float,
    service: str,
    headers: Mapping[str, str] | None = None,
    *,
    data: bytes | None = None,
    method: str | None = None,
) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise CredentialsUnavailable(f"the address of {service} is no URL")
    request = urllib.request.Request(url, data=data, headers=dict(headers or {}), method=method)  # noqa: S310
    try:
        return send(request, timeout_seconds)
    except urllib.error.HTTPError as refusal:
        with refusal:
            raise CredentialsUnavailable(f"{service} answers {refusal.code}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CredentialsUnavailable(f"{service} cannot be reached ({type(error).__name__})") from None


def _send(request: urllib.request.Request, timeout_seconds: float) -> bytes:
    # Plain HTTP is used on this machine only, and never through a proxy.
    proxies = [urllib.request.ProxyHandler({})] if request.type == "http" else []
    with urllib.request.build_opener(*proxies).open(request, timeout=timeout_seconds) as response:
        content: bytes = response.read(MAX_ANSWER_BYTES)
    return content


def _json(answer: bytes, service: str) -> Mapping[str, object]:
    try:
        parsed = orjson.loads(answer)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise CredentialsUnavailable(f"{service} did not answer with JSON")
    return parsed


def _keys(found: Mapping[str, object], token: str) -> S3Credentials:
    try:
        expires = datetime.fromisoformat(str(found["Expiration"]))
        # Another provider's service may return credentials without a session token.
        session = found.get(token)
        return S3Credentials(
            Secret(str(found["AccessKeyId"])),
            Secret(str(found["SecretAccessKey"])),
            Secret(str(session)) if session else None,
            expires if expires.tzinfo else expires.replace(tzinfo=UTC),
        )
    except (KeyError, ValueError):
        raise CredentialsUnavailable("the role's keys are not in the answer") from None


def _file(path: str, variable: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise CredentialsUnavailable(f"the file that {variable} names cannot be read") from None
