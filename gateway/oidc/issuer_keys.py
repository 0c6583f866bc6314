"""The public keys of one identity provider, fetched with the first token and kept fresh from then on.

In: an `Issuer` of the configuration. Out: `SigningKeys` that fit a token. Keys are fetched by one task at a
time: in the background when half of their life is over, and at once after a reload, for a key id that is not
known and for a signature that fails, because the issuer may have replaced a key under its id.
Tokens of strangers cannot make the server send requests more often than every 30 seconds. While the provider
does not answer, the last keys stay valid for a day.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.authentication.policies import TokenRefused
from gateway.config.oidc import Issuer
from gateway.oidc.identity_token import IdentityToken, SigningKey, SigningKeys
from gateway.oidc.provider_requests import FetchError, ProviderSession, provider_session, reason_of
from gateway.times import DAY_SECONDS

log = logging.getLogger("gateway.federation")

RETRY_SECONDS, FIRST_RETRY_SECONDS = 30.0, 5.0
MIN_LIFE_SECONDS, DEFAULT_LIFE_SECONDS = 300.0, 3600.0
FILE_LIFE_SECONDS = 120.0
KEPT_SECONDS = float(DAY_SECONDS)

_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=([0-9]{1,9})(?:$|[\s,;])", re.IGNORECASE)


class IssuerKeys:
    """The keys of an issuer. Used by the event loop only."""

    def __init__(self, issuer: Issuer, now_seconds: Callable[[], float] = time.monotonic) -> None:
        self.issuer = issuer
        self._now_seconds = now_seconds
        self._keys = SigningKeys(())
        self._fetched_seconds: float | None = None
        self._refresh_seconds = 0.0
        self._tried_seconds: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False
        self.is_stale = False
        """The keys are fetched before the next token is verified, as after a reload; the last stay valid."""

    @property
    def age_seconds(self) -> float | None:
        """Return the age of the keys; None without any."""
        return None if self._fetched_seconds is None else self._now_seconds() - self._fetched_seconds

    def is_current(self, key: SigningKey) -> bool:
        """Return whether a key that verified a token is still a key of the issuer."""
        # A client may use one token for a day, and no other token may need a verification meanwhile.
        self.refresh()
        return key in self._valid()

    def refresh(self) -> None:
        """Fetch keys that were fetched before in the background, when half of their life is over."""
        is_due = self._fetched_seconds is not None and self._now_seconds() >= self._refresh_seconds
        if is_due and self._may_fetch():
            self._start_fetch()

    async def find(self, key_id: str | None, algorithm: str) -> Sequence[SigningKey]:
        """Return the keys that may have signed a token. Raises TokenRefused if there are none."""
        if self.is_stale:
            await self._fetched()
            self.is_stale = False
        keys = self._valid()
        if matching := keys.find(key_id, algorithm):
            self.refresh()
            return matching
        if self._task is not None or self._may_fetch():
            await self._fetched()
            keys = self._valid()
        if matching := keys.find(key_id, algorithm):
            return matching
        reason = "the issuer has no such key" if len(keys) else "the issuer's keys are not available"
        raise TokenRefused("keys", reason)

    async def verify(self, token: IdentityToken, now_seconds: float) -> tuple[Mapping[str, Any], SigningKey]:
        """Return the claims of a token of this issuer, and the key that signed it. Raises TokenRefused."""
        if token.algorithm not in self.issuer.algorithms:
            raise TokenRefused("header", "the token's algorithm is not accepted")
        keys = await self.find(token.key_id, token.algorithm)
        try:
            return self._verified(token, keys, now_seconds)
        except TokenRefused as refused:
            # The issuer may have replaced a key under its id.
            if refused.reason != "signature" or not (self._task is not None or self._may_fetch()):
                raise
            await self._fetched()
            newer = self._valid().find(token.key_id, token.algorithm)
            if newer == keys:
                raise
        return self._verified(token, newer, now_seconds)

    def _verified(
        self, token: IdentityToken, keys: Sequence[SigningKey], now_seconds: float
    ) -> tuple[Mapping[str, Any], SigningKey]:
        refused: TokenRefused | None = None
        for key in keys:
            try:
                claims = token.claims(
                    key, now_seconds=now_seconds, max_lifetime_seconds=self.issuer.max_lifetime_seconds
                )
            except TokenRefused as error:
                refused = error
                if error.reason != "signature":
                    break
            else:
                return claims, key
        raise refused or TokenRefused("keys", "the issuer has no such key")

    def _valid(self) -> SigningKeys:
        age_seconds = self.age_seconds
        return self._keys if age_seconds is not None and age_seconds < KEPT_SECONDS else SigningKeys(())

    def _may_fetch(self) -> bool:
        pause_seconds = RETRY_SECONDS if len(self._keys) else FIRST_RETRY_SECONDS
        return self._tried_seconds is None or self._now_seconds() - self._tried_seconds >= pause_seconds

    async def _fetched(self) -> None:
        """Wait for a fetch: a running one, or a new one. The fetch continues if this request is cancelled."""
        self._start_fetch()
        await asyncio.shield(self._task or asyncio.sleep(0))

    def _start_fetch(self) -> None:
        if self._task is None:
            self._tried_seconds = self._now_seconds()
            self._task = asyncio.ensure_future(self._fetch())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            log.error("the keys of %s were not fetched", self.issuer.issuer, exc_info=task.exception())

    async def _fetch(self) -> None:
        try:
            document, life_seconds = await self._document()
            # A provider may list thousands.
            keys = await asyncio.to_thread(SigningKeys.parse, document)
        except Exception as error:  # noqa: BLE001 - no document of a provider may end its known keys
            if not self._has_failed:
                log.warning("the keys of %s cannot be fetched: %s", self.issuer.issuer, reason_of(error))
            self._has_failed = True
            return
        if self._has_failed:
            log.info("the keys of %s were fetched again", self.issuer.issuer)
        self._has_failed = False
        now_seconds = self._now_seconds()
        # Keys that did not change stay the same objects, so that verified tokens stay verified.
        self._keys = self._keys.updated(keys)
        self._fetched_seconds = now_seconds
        self._refresh_seconds = now_seconds + life_seconds / 2

    async def _document(self) -> tuple[bytes, float]:
        """Return the key set and the time for which it is fresh."""
        if self.issuer.jwks_file is not None:
            return await asyncio.to_thread(self.issuer.jwks_file.read_bytes), FILE_LIFE_SECONDS
        async with provider_session(self.issuer) as session:
            answer = await session.get(self.issuer.jwks_uri or await _jwks_uri(session))
            return answer.body, _life_seconds(answer.cache_control)


async def _jwks_uri(session: ProviderSession) -> str:
    uri = (await session.discover()).get("jwks_uri")
    if not isinstance(uri, str):
        raise FetchError("the discovery document has no jwks_uri")
    return uri


def _life_seconds(cache_control: str) -> float:
    match = _MAX_AGE.search(cache_control)
    seconds = float(match.group(1)) if match else DEFAULT_LIFE_SECONDS
    return min(max(seconds, MIN_LIFE_SECONDS), KEPT_SECONDS)
