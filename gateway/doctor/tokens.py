"""The `Authorization` of requests: a bearer token, one of an identity provider, or a user and a password.

In: a profile. Out: an `Authorization`. Token requests have the form that the official Python client sends, so
that a provider that accepts this one accepts the client.
"""

from __future__ import annotations

import base64
import binascii
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import orjson

from gateway.doctor.clock import clock_problem, utc_text
from gateway.doctor.connection_errors import OWN_TOKEN_ENDPOINT, SERVER, TOKEN_ENDPOINT, Service
from gateway.doctor.findings import Findings, Owner, Problem
from gateway.doctor.profile import PrivateKey, RecipientProfile
from gateway.doctor.server_errors import ServerError
from gateway.doctor.transport import Answer, Transport
from gateway.doctor.urls import is_same_host
from gateway.encoding import is_header_token

STEP = "token"
ASSERTION_SECONDS = 120
RENEWAL_SECONDS = 600
"""Clients request a new token when less than this is left."""
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_FORM = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
_OTHER_ENDPOINT = "compare tokenEndpoint with the profile that the provider sent"

ERRORS: Mapping[str, str] = {
    "invalid_client": (
        "compare clientId and clientSecret with the client at the identity provider; secrets expire, and "
        "the id of a secret is not its value"
    ),
    "invalid_grant": (
        "look at the clock, at issuer and keyId of the profile, and whether the identity provider has the "
        "public half of the private key"
    ),
    "invalid_request": "compare tokenEndpoint, scope and audience with the identity provider's",
    "invalid_scope": "set the scope that the provider of the share names; of Entra ID it ends with /.default",
    "unauthorized_client": "allow the client this grant at the identity provider",
    "unsupported_grant_type": "the identity provider does not offer this grant: use another type of profile",
}
OWN_ERRORS: Mapping[str, str] = {
    "invalid_client": (
        "the secret was replaced, was revoked or has expired: the provider issues a new one, at this gateway "
        "by `delta-gateway recipient client rotate`, and the recipient uses the newest profile that was sent"
    ),
    "unsupported_grant_type": "send a profile of the type oauth_client_credentials",
}
"""For servers that issue tokens themselves."""


@dataclass(frozen=True, slots=True)
class Authorization:
    """The header of requests, and what a refusal of it can mean."""

    header: str = field(repr=False)
    hint: str = ""


def authorize(profile: RecipientProfile, transport: Transport, findings: Findings) -> Authorization:
    """Return the authorization of a profile. Raises Problem."""
    if profile.kind == "bearer":
        return _bearer(profile.bearer_token, findings)
    if profile.kind == "basic":
        return _basic(profile, transport, findings)
    token = _requested(profile, transport, findings)
    findings.hide(token)
    return _bearer(token, findings)


def _bearer(token: str, findings: Findings) -> Authorization:
    """Return the header of a token; claims of a JWT are read, without the check of its signature."""
    claims = _claims(token)
    if claims is None:
        return Authorization(f"Bearer {token}")
    end = claims.get("exp")
    if isinstance(end, (int, float)) and not isinstance(end, bool) and end <= time.time():
        findings.fail(
            STEP,
            Problem(
                f"the token ended on {utc_text(end)}",
                Owner.IDENTITY_PROVIDER,
                "request a new token; the recipient looks at the clock of this machine",
            ),
        )
    named = (claims.get("iss"), claims.get("sub"), *_list(claims.get("aud")))
    findings.show_paths(*(name for name in named if isinstance(name, str)))
    described = ", ".join(
        f"{name} {claims[name]}" for name in ("iss", "aud", "sub", "azp") if claims.get(name)
    )
    return Authorization(
        f"Bearer {token}",
        f"compare the token with the policies of the recipient at the server; its claims are: {described}",
    )


def _claims(token: str) -> dict[str, Any] | None:
    parts = token.split(".")
    if len(parts) != 3:  # noqa: PLR2004 - header, claims and signature
        return None
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(f"{parts[1]}=="))
    except (binascii.Error, orjson.JSONDecodeError, ValueError):
        return None
    return claims if isinstance(claims, dict) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _basic(profile: RecipientProfile, transport: Transport, findings: Findings) -> Authorization:
    pair = f"{profile.username}:{profile.password}".encode()
    encoded = base64.b64encode(pair).decode()
    findings.hide(encoded)
    header = f"Basic {encoded}"
    body = urlencode({"grant_type": "client_credentials"}).encode()
    # The Python client sends this once and does not look at the answer.
    with suppress(Problem):
        transport.send(
            SERVER, "POST", profile.endpoint, headers={**_FORM, "Authorization": header}, body=body
        )
    return Authorization(header, "compare user name and password with those that the provider sent")


def _requested(profile: RecipientProfile, transport: Transport, findings: Findings) -> str:
    if profile.private_key is not None:
        assertion = _assertion(profile, profile.private_key)
        findings.hide(assertion)
        headers, body = _FORM, urlencode({"grant_type": JWT_BEARER, "assertion": assertion})
    else:
        pair = base64.b64encode(f"{profile.client_id}:{profile.client_secret}".encode()).decode()
        findings.hide(pair)
        headers = {**_FORM, "authorization": f"Basic {pair}"}
        # Clients do not encode the scope.
        body = "grant_type=client_credentials" + (f"&scope={profile.scope}" if profile.scope else "")
    is_own = is_same_host(profile.token_endpoint, profile.endpoint)
    service = OWN_TOKEN_ENDPOINT if is_own else TOKEN_ENDPOINT
    answer = transport.send(service, "POST", profile.token_endpoint, headers=headers, body=body.encode())
    if answer.status != 200:  # noqa: PLR2004 - OK
        raise _refusal(answer, service)
    return _token(answer, service, findings)


def _assertion(profile: RecipientProfile, key: PrivateKey) -> str:
    import jwt  # noqa: PLC0415 - for this type of profile only

    now = int(time.time())
    claims: dict[str, Any] = {
        "aud": key.issuer,
        "iss": profile.client_id,
        "iat": now,
        "exp": now + ASSERTION_SECONDS,
        "jti": str(uuid.uuid4()),
        **({"scope": profile.scope} if profile.scope else {}),
        # The name that clients give to the audience.
        "resource": key.audience,
    }
    try:
        return jwt.encode(claims, key.file.read_bytes(), key.algorithm, headers={"kid": key.key_id})
    except (OSError, ValueError, TypeError, NotImplementedError, jwt.PyJWTError) as error:
        raise Problem(
            f"the private key cannot sign by {key.algorithm} ({type(error).__name__})",
            Owner.RECIPIENT,
            "give an unencrypted private key in PEM that fits auth.privateKey.algorithm",
        ) from None


def _refusal(answer: Answer, service: Service) -> Problem:
    error = ServerError(answer, is_oauth=True)
    message = f"{service.name} answers {error}"
    if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        advice = f"{error.wait}; look for a program that requests tokens too often, or with an old secret"
        return Problem(message, Owner.RECIPIENT, advice)
    clock = clock_problem(answer, service.name)
    if clock is not None:
        return Problem(f"{message}; {clock.message}", clock.owner, clock.advice)
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        place = "the identity provider" if service is TOKEN_ENDPOINT else "the server"
        advice = f"try again later; if it stays so, look at the log of {place}"
        return Problem(message, service.owner, advice)
    if not error.is_of_protocol:
        advice = "compare tokenEndpoint with the identity provider's; the answer does not follow OAuth"
        return Problem(message, Owner.RECIPIENT, advice if service is TOKEN_ENDPOINT else _OTHER_ENDPOINT)
    code = "invalid_client" if answer.status == HTTPStatus.UNAUTHORIZED else "invalid_request"
    if service is TOKEN_ENDPOINT:
        return Problem(message, Owner.RECIPIENT, ERRORS.get(error.code, ERRORS[code]))
    advice = OWN_ERRORS.get(error.code, OWN_ERRORS.get(code, ""))
    if advice:
        return Problem(message, Owner.PROVIDER, advice)
    return Problem(message, Owner.RECIPIENT, f"look at the message; {_OTHER_ENDPOINT}")


def _token(answer: Answer, service: Service, findings: Findings) -> str:
    document = answer.json()
    fields = document if isinstance(document, dict) else {}
    token, life = fields.get("access_token"), fields.get("expires_in")
    if not isinstance(token, str) or not token:
        raise _incomplete("access_token", service)
    findings.hide(token)
    if not is_header_token(token):
        raise Problem(
            f"{service.name} answers with a token that no header can have",
            service.owner,
            "let it issue tokens of visible characters of ASCII",
        )
    try:
        life_seconds = int(life)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise _incomplete("expires_in", service) from None
    if life_seconds < RENEWAL_SECONDS:
        advice = f"let tokens of this client live for at least {2 * RENEWAL_SECONDS} seconds"
        if service is OWN_TOKEN_ENDPOINT:
            advice += (
                ", at this gateway by gateway.oauth.tokenLifetimeSeconds; a secret that ends soon shortens "
                "them, too: rotate it"
            )
        problem = Problem(
            f"tokens live for {life_seconds} seconds, so clients request one for each call",
            service.owner,
            advice,
        )
        findings.warn(STEP, problem)
    else:
        findings.ok(STEP, f"{service.name} issues tokens that live for {life_seconds // 60} minutes")
    return token


def _incomplete(name: str, service: Service) -> Problem:
    is_own = service is OWN_TOKEN_ENDPOINT
    return Problem(
        f"{service.name} answers without {name}, which clients need",
        service.owner,
        "update the server of the share"
        if is_own
        else "compare tokenEndpoint of the profile with the identity provider's",
    )
