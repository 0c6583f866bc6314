"""Buckets of R2, whose temporary credentials Cloudflare's API issues for the objects below a prefix."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from gateway.config.secret import Secret
from gateway.config.storages.r2 import R2Entry
from gateway.storage.aws.credentials import S3Credentials
from gateway.storage.aws.store import S3Store
from gateway.storage.credentials import CredentialsUnavailable
from gateway.storage.service_requests import NoAnswer, send
from gateway.storage.vending.credential import CredentialRequest, TemporaryCredential

API = "https://api.cloudflare.com/client/v4"
SERVICE = "Cloudflare's API"
_DENIED = frozenset(range(400, 500)) - {408, 425, 429}
_FIELDS = ("accessKeyId", "secretAccessKey", "sessionToken")


@dataclass(eq=False, repr=False)
class R2Store(S3Store):
    """A bucket of R2."""

    entry: R2Entry

    def _issue(
        self, request: CredentialRequest, keys: S3Credentials, now_ms: Callable[[], int]
    ) -> TemporaryCredential:
        account, token = self.entry.account, self.entry.cloudflare_api_token
        if account is None or token is None or request.networks:
            raise CredentialsUnavailable("credentials of R2 cannot be limited as requested", lasting=True)
        requested_ms = now_ms()
        api = (self.entry.sts_endpoint or API).rstrip("/")
        answer = _post(
            f"{api}/accounts/{account[0]}/r2/temp-access-credentials",
            {
                "bucket": request.location.bucket,
                "parentAccessKeyId": keys.access_key_id.reveal(),
                "permission": "object-read-only",
                "prefixes": [f"{request.location.key}/"],
                "ttlSeconds": request.seconds,
            },
            {"Authorization": f"Bearer {token.reveal()}", "cf-r2-jurisdiction": account[1]},
        )
        try:
            fields = {name: answer["result"][name] for name in _FIELDS}
        except (KeyError, TypeError):
            fields = {}
        if not fields or not all(isinstance(text, str) and text for text in fields.values()):
            raise CredentialsUnavailable(f"{SERVICE} answers without credentials")
        return TemporaryCredential(
            request.location,
            "r2Credentials",
            {name: Secret(text) for name, text in fields.items()},
            # The answer has no end. Whole seconds, as it is counted by them.
            requested_ms // 1000 * 1000 + request.seconds * 1000,
            fields["accessKeyId"],
        )


def _post(url: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
    sent = {"Content-Type": "application/json", "User-Agent": "delta-sharing-gateway", **headers}
    try:
        answer = send("POST", url, sent, json.dumps(body).encode(), private=True)
    except NoAnswer as error:
        raise CredentialsUnavailable(f"{SERVICE} {error}") from None
    if answer.status != HTTPStatus.OK:
        raise CredentialsUnavailable(f"{SERVICE} answers {answer.status}", lasting=answer.status in _DENIED)
    try:
        return json.loads(answer.body)
    except ValueError:
        raise CredentialsUnavailable(f"{SERVICE} does not answer in JSON") from None
