"""The keys of R2 with temporary credentials of Cloudflare in `gateway.storages[]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from gateway.config.errors import Invalid
from gateway.config.locations import Location
from gateway.config.networks import Network
from gateway.config.operation import setting
from gateway.config.secret import Secret
from gateway.config.storages.entry import is_insecure
from gateway.config.storages.s3 import S3Entry

_R2_HOST = re.compile(r"([0-9a-f]{32})(?:\.(eu|fedramp))?\.r2\.cloudflarestorage\.com")


@dataclass(frozen=True, slots=True)
class R2Entry(S3Entry):
    """A bucket of R2 whose temporary credentials are those of Cloudflare's API.

    Attributes:
        cloudflare_api_token: R2: token of Cloudflare's API, for temporary credentials of directory access.

    """

    cloudflare_api_token: Secret | None = setting(None, identifies=False)

    @property
    def account(self) -> tuple[str, str] | None:
        """Return the account and its jurisdiction, `default` or another; None for other stores."""
        match = _R2_HOST.fullmatch(urlsplit(self.endpoint or "").hostname or "")
        return (match[1], match[2] or "default") if match else None

    def networks_problem(self, networks: Sequence[Network]) -> str | None:
        """Return why a credential cannot be limited to a recipient's networks; None if it can."""
        return "credentials of R2 cannot be limited to networks" if networks else None

    def policy_length(self, _location: Location, _networks: Sequence[Network]) -> int:
        """Return 0: the credentials have no session policy."""
        return 0

    def _root_problem(self, _location: Location) -> str | None:
        return None

    def _check(self) -> None:
        self._check_visible("cloudflare_api_token")
        S3Entry._check(self)  # noqa: SLF001 - super() fails in dataclasses with slots
        if self.account is None or self.access_key_id is None:
            raise Invalid(
                "cloudflare_api_token",
                "is for R2: give accessKeyId and `endpoint`, https://ACCOUNT.r2.cloudflarestorage.com",
            )
        if is_insecure(self.sts_endpoint):
            raise Invalid("sts_endpoint", "tokens are sent only by HTTPS; give https://")
