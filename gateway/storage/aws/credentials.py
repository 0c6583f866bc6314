"""The provider's default credential chain, as far as URLs can be signed with it.

In: the environment. Out: credentials, in this order: `AWS_ACCESS_KEY_ID` / `AWS_SECRET_ACCESS_KEY` /
`AWS_SESSION_TOKEN`, the profile `AWS_PROFILE` of the shared credentials file (`AWS_SHARED_CREDENTIALS_FILE`,
else `~/.aws/credentials`), or temporary credentials of a role (see `roles`). The region
comes from `AWS_REGION`, `AWS_DEFAULT_REGION` or the profile of `AWS_CONFIG_FILE`, else `~/.aws/config`.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from gateway.config.secret import Secret

DEFAULT_REGION = "us-east-1"
SUPPORTED = (
    "gateway.storages with accessKeyId and secretAccessKey; the variables AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY; a profile in the shared credentials file; a role of a web identity, a container "
    "or an instance"
)


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """Credentials that sign URLs, with their expiry."""

    access_key_id: Secret
    secret_access_key: Secret
    session_token: Secret | None = None
    expires: datetime | None = None
    file: Path | None = None
    """The shared credentials file that they come from; other programs may replace its content."""


def default_credentials(environment: Mapping[str, str]) -> S3Credentials | None:
    """Return the credentials of variables or of the shared file; None if there are none."""
    found = _from(environment, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    if found is not None:
        return found
    path = environment.get("AWS_SHARED_CREDENTIALS_FILE") or _home(environment, "credentials")
    section = _profile(path, environment.get("AWS_PROFILE", "default"))
    found = _from(section, "aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    return replace(found, file=Path(path)) if found else None


def default_region(environment: Mapping[str, str]) -> str:
    """Return the region: of variables, else of the profile, else us-east-1."""
    named = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if named:
        return named
    profile = environment.get("AWS_PROFILE", "default")
    section = "default" if profile == "default" else f"profile {profile}"
    path = environment.get("AWS_CONFIG_FILE") or _home(environment, "config")
    return _profile(path, section).get("region", DEFAULT_REGION)


def _from(values: Mapping[str, str], key: str, secret: str, session: str) -> S3Credentials | None:
    if not (values.get(key) and values.get(secret)):
        return None
    token = values.get(session)
    return S3Credentials(Secret(values[key]), Secret(values[secret]), Secret(token) if token else None)


def _home(environment: Mapping[str, str], name: str) -> str:
    return str(Path(environment.get("HOME", "/nonexistent"), ".aws", name))


def _profile(path: str, section: str) -> Mapping[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(path, encoding="utf-8")
        return dict(parser[section])
    except (OSError, UnicodeDecodeError, configparser.Error, KeyError):
        return {}
