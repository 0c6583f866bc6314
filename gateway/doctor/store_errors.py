"""Refusals of object stores as problems of a recipient.

In: an `Answer` of S3, Azure, Google or a server of files. Out: a `Problem` with the store's code. Nothing
else of the answer is in it: bodies of refused signatures have session tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from gateway.doctor.clock import clock_problem
from gateway.doctor.findings import Owner, Problem
from gateway.doctor.server_errors import ServerError
from gateway.doctor.transport import Answer
from gateway.storage.refusals import Kind, refusal

OWNERS: Mapping[str, Owner] = {"PublicAccessNotPermitted": Owner.NETWORK}


def explain(answer: Answer, host: str, *, is_listing: bool = False) -> Problem:
    """Return the problem of a refused read of a file, or of a list of files."""
    headers = answer.headers
    code = headers.get("x-ms-error-code")
    if code is None and is_listing and answer.status == HTTPStatus.NOT_FOUND:
        # Google's JSON has no code. A list of no files is no refusal, so the bucket is absent.
        code = "NoSuchBucket"
    refused = refusal(
        "gs" if any(name.startswith("x-goog-") for name in headers) else "s3",
        answer.status,
        answer.body.decode("utf-8", "replace"),
        code=code,
    )
    is_clock = refused.kind is Kind.CLOCK and refused.code != "RequestTimeTooSkewed"
    owner = Owner.RECIPIENT if is_clock else OWNERS.get(refused.code, Owner.PROVIDER)
    meaning = refused.meaning
    if refused.kind is Kind.OTHER:
        meaning = ServerError(answer).message or meaning
    # The server signs URLs by its own clock: this one is a suspect beside the reason.
    if answer.status == HTTPStatus.FORBIDDEN and (clock := clock_problem(answer, "the store")) is not None:
        meaning = f"{meaning}; {clock.message}"
    return Problem(f"{host} answers {refused.name}: {meaning}", owner, refused.advice)
