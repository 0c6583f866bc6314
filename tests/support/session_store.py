"""An S3 server with STS for tests: it verifies sessions and their policies before versitygw, which has none.

Of policies it knows what those of the gateway say. MinIO judges the same tests in the part `nightly`.
"""

import http.client
import ipaddress
import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from support.aws_identity import Sts
from support.http_service import Request, Response, serving
from support.signature_v4 import Keys, SignatureRefused, verify
from support.versitygw import S3Server, VersityGw

CLIENT = "127.0.0.1"
FORWARDED = ("range", "content-type", "if-match", "if-none-match")
OF_ONE_HOP = {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"}
STATUS = {
    "ExpiredToken": 400,
    "InvalidTokenId": 403,
    "MalformedPolicyDocument": 400,
    "XMinioInvalidResourceName": 400,
}


@dataclass
class SessionStore:
    """A token service, and the store that knows its sessions."""

    behind: VersityGw
    sts: Sts
    policies: dict[str, Any] = field(default_factory=dict)
    """By the access key of their session."""
    issuing: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request) -> Response:
        """Answers one call of either service."""
        if request.method == "POST" and request.path == "/":
            with self.issuing:
                response = self.sts.answer(request)
                if response.status == 200 and "Policy" in request.form:
                    session = self.sts.sessions[-1]
                    self.policies[session.access_key_id] = json.loads(request.form["Policy"])
            return response
        try:
            self._check(request)
        except SignatureRefused as refusal:
            body = f"<Error><Code>{refusal}</Code><Message>refused</Message></Error>"
            return Response(STATUS.get(str(refusal), 403), body.encode(), {"Content-Type": "application/xml"})
        return self._forward(request)

    def _check(self, request: Request) -> None:
        # versitygw resolves dots after the policy has been asked, MinIO refuses them.
        if {".", ".."} & {*unquote(request.path).split("/")}:
            raise SignatureRefused("XMinioInvalidResourceName")
        sessions = {session.access_key_id: session for session in self.sts.sessions}
        secrets = {key: session.secret_access_key for key, session in sessions.items()}
        secrets[self.behind.access_key_id] = self.behind.secret_access_key
        signer = verify(request, Keys(secrets, {}))
        if (session := sessions.get(signer)) is None:
            return
        token = request.headers.get("x-amz-security-token") or request.query.get("X-Amz-Security-Token")
        if token != session.session_token:
            raise SignatureRefused("InvalidTokenId")
        if session.ends < datetime.now(UTC):
            raise SignatureRefused("ExpiredToken")
        if signer in self.policies and not allows(self.policies[signer], request):
            raise SignatureRefused("AccessDenied")

    def _forward(self, request: Request) -> Response:
        own = {name: value for name, value in request.query.items() if not name.startswith("X-Amz-")}
        # As the signature is of one encoding, whatever that of the request is.
        path = quote(unquote(request.path), safe="/-_.~")
        target = f"{path}?{urlencode(own, safe='-_.~', quote_via=quote)}" if own else path
        headers = {name: request.headers[name] for name in FORWARDED if name in request.headers}
        signed = AWSRequest(request.method, f"{self.behind.endpoint}{target}", headers, request.body)
        keys = Credentials(self.behind.access_key_id, self.behind.secret_access_key)
        S3SigV4Auth(keys, "s3", self.behind.region).add_auth(signed)
        address = urlsplit(self.behind.endpoint).netloc
        with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
            connection.request(request.method, target, request.body, dict(signed.headers.items()))
            answer = connection.getresponse()
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in OF_ONE_HOP}
            if request.method == "HEAD":
                kept["Content-Length"] = answer.headers["Content-Length"] or "0"
            return Response(answer.status, answer.read(), kept)


def allows(policy: Any, request: Request) -> bool:
    """Whether a statement of a policy permits a request."""
    bucket, _, key = unquote(request.path).removeprefix("/").partition("/")
    facts = {"s3:prefix": request.query.get("prefix", "")}
    if not key:
        action = "s3:ListBucket" if request.method in {"GET", "HEAD"} else "s3:CreateBucket"
    else:
        action = {"GET": "s3:GetObject", "HEAD": "s3:GetObject"}.get(request.method, "s3:PutObject")
    resource = f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}"
    return any(
        statement["Effect"] == "Allow"
        and action == statement["Action"]
        and is_like(statement["Resource"], resource)
        and all(holds(kind, wanted, facts) for kind, wanted in statement.get("Condition", {}).items())
        for statement in policy["Statement"]
    )


def holds(kind: str, wanted: dict[str, Any], facts: dict[str, str]) -> bool:
    """Whether a condition holds for a request of this machine. Raises for a kind that is not known."""
    for name, given in wanted.items():
        choices = [given] if isinstance(given, str) else given
        if (kind, name) == ("IpAddress", "aws:SourceIp"):
            found = any(ipaddress.ip_address(CLIENT) in ipaddress.ip_network(one) for one in choices)
        elif kind == "StringLike" and name in facts:
            found = any(is_like(one, facts[name]) for one in choices)
        else:
            raise SignatureRefused("MalformedPolicyDocument")
        if not found:
            return False
    return True


def is_like(pattern: str, text: str) -> bool:
    """Whether a pattern of IAM matches: `*` and `?` are jokers, `${*}`, `${?}` and `${$}` themselves."""
    parts = re.split(r"(\$\{[$*?]\}|[*?])", pattern)
    jokers = {"*": ".*", "?": "."}
    regex = "".join(
        jokers.get(part) or re.escape(part[2] if re.fullmatch(r"\$\{.\}", part) else part) for part in parts
    )
    return re.fullmatch(regex, text, re.DOTALL) is not None


@contextmanager
def running(behind: VersityGw) -> Iterator[S3Server]:
    """Runs it before a server until the block ends; STS is at the same endpoint."""
    store = SessionStore(behind, Sts(behind.access_key_id, behind.secret_access_key))
    with serving(store.answer) as service:
        yield S3Server(service.url)
