"""Findings of steps: a status, a sentence, what to do, and who does it.

`Findings` removes secrets, and paths and queries of URLs, from every text that it takes, because messages of
servers and identity providers can quote them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from urllib.parse import quote

MAX_TEXT_LENGTH = 600
MIN_SECRET_LENGTH = 6
"""Shorter values are not searched for in texts; they would blank parts of words."""
HIDDEN = "[hidden]"
STORE_SCHEMES = frozenset(
    (
        "s3", "s3a", "s3n", "r2", "gs", "az", "abfs", "abfss", "adl", "wasb", "wasbs", "file", "hdfs",
        "viewfs", "dbfs", "oss", "obs", "cos", "cosn",
    )
)  # fmt: skip

_URL = re.compile(
    # Also with the slashes of quoted JSON, and encoded.
    r"(?<![a-z])([a-z][a-z0-9+.-]{1,15})(?::\\?/\\?/|%3A%2F%2F)"
    r"(?:[^\s/?#@'\"<>]*@)?([^\s?#'\"<>/\\%]*)([^\s'\"<>]*)",
    re.IGNORECASE,
)
_PUNCTUATION = ".,;:)"
# A JWT that is not in the profile, such as a token that a server quotes.
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_SIGNATURE = re.compile(
    r"\b(X-Amz-Signature|X-Amz-Credential|X-Amz-Security-Token|X-Goog-Signature|X-Goog-Credential|sig)=[^\s&'\"<>]+",
    re.IGNORECASE,
)


class Status(StrEnum):
    """The result of a step."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Owner(StrEnum):
    """The people who can fix a problem."""

    RECIPIENT = "recipient"
    PROVIDER = "provider"
    NETWORK = "network"
    IDENTITY_PROVIDER = "identity provider"


class Problem(Exception):
    """What is wrong, what to do, and who does it. Raised where it ends the following steps of its kind."""

    def __init__(self, message: str, owner: Owner, advice: str) -> None:
        super().__init__(message)
        self.message, self.owner, self.advice = message, owner, advice


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a step."""

    step: str
    status: Status
    message: str
    owner: Owner | None = None
    advice: str = ""


@dataclass(slots=True)
class Findings:
    """The findings so far. Each one is given to `report` without secrets."""

    report: Callable[[Finding], None] = lambda _: None
    items: list[Finding] = field(default_factory=list)
    _secrets: set[str] = field(default_factory=set, repr=False)
    _origins: set[str] = field(default_factory=set)
    _ended: bool = False

    def end(self) -> None:
        """Ignore findings that are added from now on."""
        self._ended = True

    def hide(self, *secrets: str | None) -> None:
        """Remove these values from all later texts."""
        known = {secret for secret in secrets if secret and len(secret) >= MIN_SECRET_LENGTH}
        self._secrets |= known | {quote(secret, safe="") for secret in known}

    def show_paths(self, *urls: str) -> None:
        """Keep the paths of URLs of these hosts, which are addresses of the profile or of a token."""
        matches = (_URL.fullmatch(url) for url in urls)
        self._origins |= {_origin(match[1], match[2]) for match in matches if match}

    def ok(self, step: str, message: str) -> None:
        """Add a step without a problem."""
        self.add(Finding(step, Status.OK, message))

    def warn(self, step: str, problem: Problem) -> None:
        """Add a problem that does not keep every client from reading."""
        self.add(Finding(step, Status.WARN, problem.message, problem.owner, problem.advice))

    def fail(self, step: str, problem: Problem) -> None:
        """Add a problem that keeps clients from reading."""
        self.add(Finding(step, Status.FAIL, problem.message, problem.owner, problem.advice))

    def add(self, finding: Finding) -> None:
        if self._ended:
            return
        shown = replace(finding, message=self._shown(finding.message), advice=self._shown(finding.advice))
        self.items.append(shown)
        self.report(shown)

    @property
    def has_failed(self) -> bool:
        return any(finding.status is Status.FAIL for finding in self.items)

    def document(self) -> dict[str, object]:
        return {"ok": not self.has_failed, "steps": [asdict(finding) for finding in self.items]}

    def _shown(self, text: str) -> str:
        # The longest first: a secret can be part of another one.
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return shown(text, self._origins)


def shown(text: str, origins: Collection[str] = frozenset()) -> str:
    """Return a text on one line, bounded, without tokens and without paths of URLs of other origins."""
    text = "".join(char if char.isprintable() else " " for char in text)
    text = _URL.sub(
        lambda url: _address(url, origins), _SIGNATURE.sub(r"\1=" + HIDDEN, _JWT.sub(HIDDEN, text))
    )
    text = " ".join(text.split())
    return text if len(text) <= MAX_TEXT_LENGTH else f"{text[:MAX_TEXT_LENGTH]}…"


def _address(url: re.Match[str], origins: Collection[str]) -> str:
    """Return a URL's scheme and host, and its path if its origin is one of these, without signatures."""
    scheme, host, rest = url.groups()
    address = f"{host}{rest}"
    ending = address[len(address.rstrip(_PUNCTUATION)) :]
    if scheme.lower() in STORE_SCHEMES:
        return f"{scheme}://{HIDDEN}{ending}"
    has_query = "?" in rest or "#" in rest
    has_path = rest.strip(f"/{_PUNCTUATION}") != ""
    if has_query or (has_path and _origin(scheme, host) not in origins):
        return f"{scheme}://{host}/…{ending}"
    return f"{scheme}://{address}"


def _origin(scheme: str, host: str) -> str:
    return f"{scheme}://{host}".lower()
