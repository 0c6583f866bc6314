"""Errors of Azure's libraries in words for the operator, without the text of an answer."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.identity import CredentialUnavailableError

from gateway.storage.credentials import CredentialsUnavailable
from gateway.storage.refusals import refusal

T = TypeVar("T")
_ENTRA = {
    "AADSTS50034": "the client or its directory does not exist",
    "AADSTS70021": "the client trusts no federated identity with the subject of the token",
    "AADSTS700016": "the client does not exist in the directory",
    "AADSTS700024": "the federated token has ended, or the clock of this machine is wrong",
    "AADSTS700213": "the client trusts no federated identity with the subject of the token",
    "AADSTS7000215": "the client secret is wrong; its value is needed, not its id",
    "AADSTS7000222": "the client secret has ended",
    "AADSTS90002": "the directory does not exist; look at tenantId and authorityHost",
}
# Their records of answers may have tokens, and each failure is raised.
for _name in ("azure", "msal"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


def requested(who: str, request: Callable[[], T]) -> T:
    """Return the result of a request of an identity or to an account. Raises CredentialsUnavailable."""
    try:
        return request()
    except (AzureError, OSError, ValueError) as error:
        raise unavailable(who, error) from None


def unavailable(who: str, error: Exception) -> CredentialsUnavailable:
    """Describe an error of Azure's libraries."""
    unreachable = (ServiceRequestError, ServiceResponseError)
    if isinstance(error, unreachable) or isinstance(error.__cause__, unreachable):
        return CredentialsUnavailable(f"{who}: the service cannot be reached ({type(error).__name__})")
    if isinstance(error, CredentialUnavailableError):
        return CredentialsUnavailable(f"{who} is not there", lasting=True)
    entra = re.search(r"AADSTS[0-9]{4,8}", str(error))
    if entra is not None:
        advice = _ENTRA.get(entra[0], "look the code up")
        return CredentialsUnavailable(
            f"{who}: Microsoft Entra ID answers {entra[0]}: {advice}", lasting=entra[0] in _ENTRA
        )
    if isinstance(error, HttpResponseError) and error.status_code is not None:
        code = getattr(error, "error_code", None) or ""
        code = str(code.value if isinstance(code, Enum) else code)
        denied = error.status_code in (401, 403)
        if re.fullmatch(r"[A-Za-z]{1,64}", code):
            meant = refusal("azure", error.status_code, "", code=code)
            text = f"{who} answers {error.status_code} ({code}): {meant.meaning}; {meant.advice}"
            return CredentialsUnavailable(text, lasting=denied)
        return CredentialsUnavailable(f"{who} answers {error.status_code}", lasting=denied)
    if isinstance(error, ClientAuthenticationError):
        return CredentialsUnavailable(f"{who}: Microsoft Entra ID gives no token", lasting=True)
    return CredentialsUnavailable(f"{who} gives no token ({type(error).__name__})")
