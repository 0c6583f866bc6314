"""Services of AWS that give out keys, for tests: STS and the metadata service of an instance.

STS checks the signature, the time and the external id of each call, and the length of a session that is
chained to another one. Errors are those of AWS, in its order of checks.
"""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from xml.sax.saxutils import escape

from support.http_service import HttpService, Request, Response, json_response, serving
from support.signature_v4 import Keys, SignatureRefused, verify

CHAINED_SECONDS = 3600
PACKED_POLICY_CHARACTERS = 2048
ROLE = "arn:aws:iam::123456789012:role/reader"


@dataclass(frozen=True)
class Session:
    """Temporary keys and their end."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)
    ends: datetime


def new_session(seconds: int) -> Session:
    """Keys that no store knows."""
    ends = (datetime.now(UTC) + timedelta(seconds=seconds)).replace(microsecond=0)
    return Session(f"ASIA{secrets.token_hex(8).upper()}", secrets.token_hex(20), secrets.token_hex(40), ends)


class StsRefused(Exception):
    """An error of STS: status, code, message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


@dataclass
class Sts:
    """A token service that knows one long-lived key and one role."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    issue: Callable[[int], Session] = new_session
    """Makes the keys of a session of some seconds."""
    external_id: str | None = None
    """The external id of the role's trust policy."""
    longest_seconds: int = 43200
    """The longest session of the role."""
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    """Errors of the next calls: status, code, message."""
    clock_offset: timedelta = timedelta()
    """How far the clock of the service is ahead of this machine's."""
    web_identities: set[str] = field(default_factory=set)
    """The tokens of AssumeRoleWithWebIdentity that are accepted."""
    service: HttpService | None = None
    sessions: list[Session] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """The names of the sessions, in order."""

    @property
    def url(self) -> str:
        """The URL of the service."""
        assert self.service is not None
        return self.service.url

    def answer(self, request: Request) -> Response:
        """Answers one call."""
        form = request.form
        try:
            self._fail_as_prepared()
            action = form.get("Action", "")
            self._authenticate(request, action)
            seconds = int(form.get("DurationSeconds", "3600"))
            self._check(form, seconds, is_chained="x-amz-security-token" in request.headers)
        except StsRefused as refusal:
            return _error(refusal)
        session = self.issue(seconds)
        self.sessions.append(session)
        self.names.append(form["RoleSessionName"])
        return _granted(action, session, form)

    def _fail_as_prepared(self) -> None:
        if self.failures:
            raise StsRefused(*self.failures.pop(0))

    def _authenticate(self, request: Request, action: str) -> None:
        if action == "AssumeRoleWithWebIdentity":
            if request.form.get("WebIdentityToken") not in self.web_identities:
                raise StsRefused(400, "InvalidIdentityToken", "No OpenIDConnect provider found")
            return
        if action != "AssumeRole":
            raise StsRefused(400, "InvalidAction", "Could not find operation")
        known = {self.access_key_id: self.secret_access_key}
        known |= {session.access_key_id: session.secret_access_key for session in self.sessions}
        try:
            now = datetime.now(UTC) + self.clock_offset
            verify(request, Keys(known, {}), now=now, service="sts")
        except SignatureRefused as refusal:
            if str(refusal) == "RequestTimeTooSkewed":
                # As STS words it: with the times of the request and of the service.
                message = f"Signature expired: {request.headers['x-amz-date']} is now earlier than (15 min.)"
                raise StsRefused(403, "SignatureDoesNotMatch", message) from None
            if str(refusal) == "InvalidAccessKeyId":
                message = "The security token included in the request is invalid."
                raise StsRefused(403, "InvalidClientTokenId", message) from None
            raise StsRefused(403, "SignatureDoesNotMatch", "The request signature differs") from None

    def _check(self, form: dict[str, str], seconds: int, *, is_chained: bool) -> None:
        if len(form.get("Policy", "")) > PACKED_POLICY_CHARACTERS:
            raise StsRefused(400, "PackedPolicyTooLarge", "Packed policy consumes 107% of allotted space")
        if not 900 <= seconds <= 43200:
            raise StsRefused(400, "ValidationError", "durationSeconds failed to satisfy constraint")
        if is_chained and seconds > CHAINED_SECONDS:
            message = "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by "
            raise StsRefused(400, "ValidationError", message + "role chaining")
        if seconds > self.longest_seconds:
            message = "The requested DurationSeconds exceeds the MaxSessionDuration set for this role."
            raise StsRefused(400, "ValidationError", message)
        if form.get("RoleArn") != ROLE or form.get("ExternalId") != self.external_id:
            message = "User: arn:aws:iam::123456789012:user/tests is not authorized: sts:AssumeRole"
            raise StsRefused(403, "AccessDenied", message)


def _error(refusal: StsRefused) -> Response:
    body = (
        '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>'
        f"<Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message></Error>"
        "<RequestId>1</RequestId></ErrorResponse>"
    )
    return Response(refusal.status, body.encode(), {"Content-Type": "text/xml"})


def _granted(action: str, session: Session, form: dict[str, str]) -> Response:
    ends = session.ends.strftime("%Y-%m-%dT%H:%M:%SZ")
    body = (
        f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result>'
        f"<Credentials><AccessKeyId>{escape(session.access_key_id)}</AccessKeyId>"
        f"<SecretAccessKey>{escape(session.secret_access_key)}</SecretAccessKey>"
        f"<SessionToken>{escape(session.session_token)}</SessionToken>"
        f"<Expiration>{ends}</Expiration></Credentials>"
        f"<AssumedRoleUser><Arn>{form['RoleArn']}/{form['RoleSessionName']}</Arn>"
        "<AssumedRoleId>AROA:x</AssumedRoleId></AssumedRoleUser>"
        f"</{action}Result><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></{action}Response>"
    )
    return Response(200, body.encode(), {"Content-Type": "text/xml"})


@contextmanager
def running_sts(sts: Sts) -> Iterator[Sts]:
    """Runs a token service until the block ends."""
    with serving(sts.answer) as sts.service:
        yield sts


@dataclass
class InstanceMetadata:
    """The metadata service of an instance with a role, version 2: each read needs a session token."""

    issue: Callable[[int], Session] = new_session
    seconds: int = 21600
    sessions: list[Session] = field(default_factory=list)
    service: HttpService | None = None
    _tokens: set[str] = field(default_factory=set)

    def answer(self, request: Request) -> Response:
        """Answers one call."""
        if request.method == "PUT" and request.path == "/latest/api/token":
            if "x-aws-ec2-metadata-token-ttl-seconds" not in request.headers:
                return Response(400)
            self._tokens.add(token := secrets.token_hex(16))
            return Response(200, token.encode(), {"X-aws-ec2-metadata-token-ttl-seconds": "21600"})
        if request.headers.get("x-aws-ec2-metadata-token") not in self._tokens:
            return Response(401)
        role = "/latest/meta-data/iam/security-credentials/"
        if request.path == role:
            return Response(200, b"reader")
        if request.path != f"{role}reader":
            return Response(404)
        self.sessions.append(session := self.issue(self.seconds))
        return json_response(
            {
                "Code": "Success",
                "LastUpdated": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "Type": "AWS-HMAC",
                "AccessKeyId": session.access_key_id,
                "SecretAccessKey": session.secret_access_key,
                "Token": session.session_token,
                "Expiration": session.ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )


@contextmanager
def running_instance(metadata: InstanceMetadata) -> Iterator[HttpService]:
    """Runs a metadata service until the block ends."""
    with serving(metadata.answer) as metadata.service:
        yield metadata.service


def single_sign_on_answer(session: Session) -> Response:
    """What the portal of a single sign-on answers."""
    keys = {
        "accessKeyId": session.access_key_id,
        "secretAccessKey": session.secret_access_key,
        "sessionToken": session.session_token,
        "expiration": int(session.ends.timestamp() * 1000),
    }
    return json_response({"roleCredentials": keys})


def credential_process_output(session: Session) -> str:
    """What a program of `credential_process` prints."""
    return json.dumps(
        {
            "Version": 1,
            "AccessKeyId": session.access_key_id,
            "SecretAccessKey": session.secret_access_key,
            "SessionToken": session.session_token,
            "Expiration": session.ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
    )
