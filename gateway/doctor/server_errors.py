"""Refusals of a server of the protocol in words.

In: an `Answer`. Out: a `Problem` with the server's code and message. The reference server and this gateway
write `errorCode`, Databricks also `error_code`, Iceberg catalogs `error.type`.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from gateway.doctor.connection_errors import SERVER
from gateway.doctor.findings import Owner, Problem
from gateway.doctor.transport import Answer

REQUEST_ID_HEADERS = ("x-request-id", "x-databricks-request-id", "x-amzn-requestid", "x-correlation-id")


LIST_OF_SHARES = "the list of shares"
_LOAD_BALANCER = "a load balancer answers, and the server behind it does not: look at the server"

ADVICE: Mapping[int, tuple[Owner, str]] = {
    400: (
        Owner.PROVIDER,
        (
            "look at the message; a catalog that it names has to be configured, a reader feature removed "
            "from the table, or the server updated"
        ),
    ),
    401: (
        Owner.PROVIDER,
        (
            "the token was replaced, was revoked or has expired: the provider issues a new profile, and the "
            "recipient uses the newest one that was sent"
        ),
    ),
    403: (
        Owner.PROVIDER,
        (
            "look at the networks of the recipient, which may exclude the public address of this machine, at "
            "the grants, and at the server's rights in the store and in the table's catalog"
        ),
    ),
    404: (
        Owner.PROVIDER,
        (
            "look whether it is still granted and named so; if it is in the lists above, its location is "
            "wrong, or its files are gone"
        ),
    ),
    503: (
        Owner.PROVIDER,
        "try again later; if it stays so, look at the server, its store and the table's catalog",
    ),
}
OF_ANOTHER_SERVER: Mapping[int, tuple[Owner, str]] = {
    403: (
        Owner.NETWORK,
        (
            "the answer does not come from a sharing server: a proxy or web filter may deny it; if not, "
            "the provider looks at what is in front of the server"
        ),
    ),
    404: (
        Owner.RECIPIENT,
        (
            "the path of the endpoint does not belong to a sharing server; compare it with the profile that "
            "the provider sent, including its prefix such as /delta-sharing"
        ),
    ),
    502: (Owner.PROVIDER, _LOAD_BALANCER),
    504: (Owner.PROVIDER, _LOAD_BALANCER),
}
"""For answers that have no error of the protocol."""
DEFECT = (Owner.PROVIDER, "look at the log of the server under the request id")
OTHER = (Owner.PROVIDER, "look at the message; the request is one that clients send")


class ServerError:
    """The code, the message and the request id of a refusal."""

    def __init__(self, answer: Answer, *, is_oauth: bool = False) -> None:
        self.status = answer.status
        document = answer.json()
        fields = document if isinstance(document, dict) else {}
        nested = fields.get("error")
        if isinstance(nested, dict):
            fields = {"errorCode": nested.get("type"), **nested}
        names = ("errorCode", "error_code", "code", "error")
        # Token endpoints can write codes of their protocol beside the code of OAuth.
        self.code = _first(fields, *(reversed(names) if is_oauth else names))
        self.message = _first(fields, "message", "error_description", "errorMessage", "detail", "details")
        self.request_id = next(
            (answer.headers[name] for name in REQUEST_ID_HEADERS if answer.headers.get(name)), ""
        )
        seconds = answer.headers.get("retry-after", "")
        self.wait = f"wait {seconds} seconds" if seconds.isdecimal() else "wait"
        self.is_of_protocol = bool(self.code or self.message)

    def __str__(self) -> str:
        """Return the status with code, message and request id."""
        parts = [f"{self.status} {self.code}".strip()]
        if self.message:
            parts.append(f": {self.message}")
        if self.request_id and self.status >= 500:  # noqa: PLR2004 - errors of the server
            parts.append(f" (request id {self.request_id})")
        return "".join(parts)


def explain(answer: Answer, request: str, token_hint: str = "") -> Problem:
    """Return the problem of an answer. `request` names what was requested."""
    error = ServerError(answer)
    owner, advice = _advice(error, request, token_hint)
    return Problem(f"{SERVER.name} answers {request} with {error}", owner, advice)


def _advice(error: ServerError, request: str, token_hint: str) -> tuple[Owner, str]:
    if error.status == HTTPStatus.UNAUTHORIZED and token_hint:
        return Owner.PROVIDER, token_hint
    if error.status == HTTPStatus.TOO_MANY_REQUESTS:
        return (
            Owner.RECIPIENT,
            f"{error.wait}, run fewer jobs at a time, or ask the provider for higher limits",
        )
    is_wrong_path = error.status == HTTPStatus.NOT_FOUND and request == LIST_OF_SHARES
    if (is_wrong_path or not error.is_of_protocol) and error.status in OF_ANOTHER_SERVER:
        return OF_ANOTHER_SERVER[error.status]
    default = DEFECT if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR else OTHER
    return ADVICE.get(error.status, default)


def _first(fields: Mapping[str, object], *names: str) -> str:
    """Return the first of some fields that is a text or a number."""
    values = (fields.get(name) for name in names)
    return next((str(value) for value in values if isinstance(value, (str, int)) and value != ""), "")
