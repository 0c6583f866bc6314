"""The section `gateway.storages[]`: what all kinds of stores have in common.

Each store has the rest of its keys in a class of its own, beside its store in `gateway.storage`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlsplit

from gateway.config.checks import check_url
from gateway.config.errors import Invalid, shown
from gateway.config.locations import Location
from gateway.config.networks import Network, is_loopback
from gateway.config.operation import setting
from gateway.config.secret import Secret
from gateway.encoding import is_header_token


@dataclass(frozen=True, slots=True)
class StorageEntry:
    """How to read the locations below one prefix and to sign their URLs.

    A key belongs to all kinds of stores, or to those that its meaning names. Without keys of an identity
    the identity of the environment is used.

    Attributes:
        prefix: locations in a bucket or container that this entry applies to; the longest matching prefix
            wins.
        endpoint: URL of the object store as the server reaches it. Without it AWS, Azure or Google.
        public_endpoint: URL of the object store in signed URLs, where clients reach it by another host.
        timeout_seconds: time limit of one call to the object store.
        retry_seconds: time for which a failing call is repeated.

    """

    KIND: ClassVar[str] = ""
    """The kind of its locations."""
    KIND_NAME: ClassVar[str] = ""
    """The kind in messages."""

    prefix: Location = setting(identifies=False)
    endpoint: str | None = setting(None, identifies=False)
    public_endpoint: str | None = setting(None, identifies=False)
    timeout_seconds: float = setting(30.0, minimum=0.1, identifies=False)
    retry_seconds: float = setting(5.0, minimum=0, identifies=False)

    def __post_init__(self) -> None:
        for name in ("endpoint", "public_endpoint"):
            check_url(name, getattr(self, name))
        self._check()

    @classmethod
    def made(cls, forms: Sequence[type[Any]], values: Mapping[str, Any]) -> StorageEntry:
        """Return the entry of the form that has the given keys. Raises Invalid for keys of other stores."""
        kind = values["prefix"].kind
        fitting = [form for form in forms if kind == form.KIND]
        if not fitting:
            raise Invalid(
                "prefix", "a storage describes prefixes of S3, Azure and Google; directories need none"
            )
        known = {field.name: field.default for form in forms for field in dataclasses.fields(form)}
        given = {name: values[name] for name in known if name in values and values[name] != known[name]}
        foreign = ([name for name in given if name not in form.__dataclass_fields__] for form in fitting)
        form, strange = min(zip(fitting, foreign, strict=True), key=lambda fit: len(fit[1]))
        if strange:
            raise Invalid(strange[0], f"is no key of a prefix of {form.KIND_NAME}; remove it")
        entry: StorageEntry = form(**given)
        return entry

    @property
    def identity_values(self) -> tuple[object, ...]:
        """Return the values that decide about the credentials."""
        fields = (field for field in dataclasses.fields(self) if field.metadata.get("identifies", True))
        return tuple(getattr(self, field.name) for field in fields)

    @property
    def extra(self) -> str:
        """Return the extra whose packages request the credentials; empty where none is needed."""
        return ""

    def comparable(self, location: Location) -> Location:
        """Return a location for comparisons with locations of other entries."""
        return location

    def root_problem(self, location: Location) -> str | None:
        """Return why no credential can be limited to a root, with what to do; None if one can."""
        if not location.key:
            return (
                "its root is a whole bucket, and credentials would cover everything in it; "
                "give it a directory"
            )
        return self._root_problem(location)

    def networks_problem(self, networks: Sequence[Network]) -> str | None:  # noqa: ARG002 - of a store
        """Return why a credential cannot be limited to a recipient's networks; None if it can."""
        return None

    def policy_length(self, location: Location, networks: Sequence[Network]) -> int:  # noqa: ARG002 - of a store
        """Return the length of the session policy of a directory; 0 where credentials have none."""
        return 0

    def _check(self) -> None:
        """Check the keys of the store. Raises Invalid."""

    def _root_problem(self, location: Location) -> str | None:  # noqa: ARG002 - of a store
        return None

    def _check_visible(self, *names: str) -> None:
        """Check that headers can have keys. No message has a part of one."""
        for name in names:
            secret: Secret | None = getattr(self, name)
            if secret is not None and not is_header_token(secret.reveal()):
                raise Invalid(name, "has a blank, a line break or another character that no key has")

    def _check_printable(self, name: str) -> None:
        secret: Secret | None = getattr(self, name)
        if secret is not None and not (
            secret.reveal().isprintable() and secret.reveal() == secret.reveal().strip()
        ):
            raise Invalid(name, "has a line break, a control character, or a blank at an end")

    def _check_form(self, name: str, form: re.Pattern[str], accepted: str) -> None:
        value = getattr(self, name)
        if value is not None and not form.fullmatch(value):
            raise Invalid(name, f"{shown(value)} is not accepted; accepted: {accepted}")


@dataclass(frozen=True, slots=True)
class LocalEntry(StorageEntry):
    """A directory of the machine."""

    KIND: ClassVar[str] = "file"

    def root_problem(self, _location: Location) -> str | None:
        """Return why no credential can be limited to a root, with what to do."""
        return "local files have no credentials; move them to an object store"


def check_access_key(access_key_id: Secret | None, secret: Secret | None) -> None:
    """Check that an access key has its secret, and a secret its key. Raises Invalid."""
    if (access_key_id is None) != (secret is None):
        raise Invalid("access_key_id", "accessKeyId and secretAccessKey go together")


def is_insecure(url: str | None) -> bool:
    """Return whether requests to a URL can be read on their way."""
    return (url or "").startswith("http://") and not is_loopback(urlsplit(url or "").hostname or "")
