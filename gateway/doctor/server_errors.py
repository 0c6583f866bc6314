"""Refusals of a server of the protocol in words.

In: an `Answer`. Out: a `Problem` with the server's code and message. The reference server and this gateway
write `errorCode`, Databricks also `error_code`, Iceberg catalogs `error.type`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from gateway.doctor.connection_errors import SERVER
from gateway.doctor.findings import Owner, Problem, StepFailed
from gateway.doctor.transport import Answer

REQUEST_ID_HEADERS = ("x-request-id", "x-databricks-request-id", "x-amzn-requestid", "x-correlation-id")


class ServerError:
    """The code, the message and the request id of a refusal."""

    def __init__(self, answer: Answer) -> None:
        self.status = answer.status
        document = answer.json()
        fields = document if isinstance(document, dict) else {}
        nested = fields.get("error")
        if isinstance(nested, dict):
            fields = {"errorCode": nested.get("type"), **nested}
        self.code = _first(fields, "errorCode", "error_code", "code", "error")
        self.message = _first(fields, "message", "error_description", "errorMessage", "detail", "details")
        self.request_id = next(
            (answer.headers[name] for name in REQUEST_ID_HEADERS if answer.headers.get(name)), ""
        )
        self.retry_after = answer.headers.get("retry-after", "")
        self.is_of_protocol = bool(self.code or self.message)

    def __str__(self) -> str:
        """Return the status with code, message and request id."""
        parts = [f"{self.status} {self.code}".strip()]
        if self.message:
            parts.append(f": {self.message}")
        if self.request_id and self.status >= 500:  # noqa: PLR2004 - errors of the server
            parts.append(f" (request id {self.request_id})")
        return "".join(parts)


def refuse(answer: Answer, request: str, token_hint: str = "") -> NoReturn:
    """Raise StepFailed for a refusal."""
    raise StepFailed(explain(answer, request, token_hint))


def explain(answer: Answer, request: str, token_hint: str = "") -> Problem:
    """Return the problem of an answer. `request` names what was requested."""
    error = ServerError(answer)
    owner, advice = _advice(error, request, token_hint)
    return Problem(f"{SERVER.name} answers {request} with {error}", owner, advice)


def _advice(error: ServerError, request: str, token_hint: str) -> tuple[Owner, str]:
    if error.status == 401:  # noqa: PLR2004 - Unauthorized
        return Owner.PROVIDER, token_hint or (
            "the token was replaced, was revoked or has expired: the provider issues a new profile, and the "
            "recipient uses the newest one that was sent"
        )
    if error.status == 403:  # noqa: PLR2004 - Forbidden
        if not error.is_of_protocol:
            return Owner.NETWORK, (
                "the answer is not one of a sharing server: a proxy or web filter between may deny it; if "
                "not, the provider looks at what is in front of the server"
            )
        return Owner.PROVIDER, (
            "look at the networks of the recipient, which may exclude the public address of this machine, at "
            "the grants, and at the server's rights in the store"
        )
    if error.status == 404:  # noqa: PLR2004 - Not Found
        if request == "the list of shares" or not error.is_of_protocol:
            return Owner.RECIPIENT, (
                "the path of the endpoint is not that of a sharing server; compare it with the profile that "
                "the provider sent, including its prefix such as /delta-sharing"
            )
        return (
            Owner.PROVIDER,
            "grant it to the recipient, or say how it is named now; names are in the lists above",
        )
    if error.status == 429:  # noqa: PLR2004 - Too Many Requests
        wait = f" {error.retry_after} seconds" if error.retry_after.isdecimal() else ""
        return Owner.RECIPIENT, f"wait{wait}, run fewer jobs at a time, or ask the provider for higher limits"
    if error.status in {502, 504} and not error.is_of_protocol:
        return (
            Owner.PROVIDER,
            "a load balancer answers, and the server behind it does not: look at the server",
        )
    if error.status == 503:  # noqa: PLR2004 - Service Unavailable
        return Owner.PROVIDER, "try again later; if it stays so, look at the server and at its store"
    if error.status >= 500:  # noqa: PLR2004 - errors of the server
        return Owner.PROVIDER, "look at the log of the server under the request id"
    return Owner.PROVIDER, "look at the message; the request is one that clients send"


def _first(fields: Mapping[str, object], *names: str) -> str:
    """Return the first of some fields that is a text or a number."""
    values = (fields.get(name) for name in names)
    return next((str(value) for value in values if isinstance(value, (str, int)) and value != ""), "")
