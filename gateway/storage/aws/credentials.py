"""Keys of AWS that are written down: in variables, or in the files of the shared configuration.

In: the environment. Out: the keys of `AWS_ACCESS_KEY_ID` / `AWS_SECRET_ACCESS_KEY` / `AWS_SESSION_TOKEN`, or
of a profile in the shared credentials file (`AWS_SHARED_CREDENTIALS_FILE`, else `~/.aws/credentials`) or the
configuration file (`AWS_CONFIG_FILE`, else `~/.aws/config`). Other keys of a profile are read by `profiles`.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from gateway.config.secret import Secret

DEFAULT_REGION = "us-east-1"
SUPPORTED = (
    "gateway.storages with accessKeyId and secretAccessKey; the variables AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY; a profile with keys, a role, a single sign-on or a credential process; a role of "
    "a web identity, a container or an instance"
)
OTHER_SOURCES = ("role_arn", "sso_session", "sso_start_url", "credential_process", "web_identity_token_file")
"""Keys of a profile whose credentials are requested."""


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """Credentials that sign URLs, with their expiry."""

    access_key_id: Secret
    secret_access_key: Secret
    session_token: Secret | None = None
    expires: datetime | None = None
    file: Path | None = None
    """The shared credentials file that they come from; other programs may replace its content."""
    source: str = field(default="", compare=False)


def default_credentials(environment: Mapping[str, str], profile: str | None = None) -> S3Credentials | None:
    """Return the keys of variables or of a profile, if there are any. A `profile` excludes variables."""
    if profile is None:
        found = _from(
            environment,
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            source="the variable AWS_ACCESS_KEY_ID",
        )
        if found is not None:
            return found
    if needs_requests(environment, profile):
        return None
    name = profile or profile_name(environment)
    for path, section in _sections(environment, name):
        found = _from(
            section,
            "aws_access_key_id",
            "aws_secret_access_key",
            "aws_session_token",
            source=f"the profile {name} of {path}",
            file=path,
        )
        if found is not None:
            return found
    return None


def needs_requests(environment: Mapping[str, str], profile: str | None = None) -> bool:
    """Return whether a profile names a role or another source of credentials that are requested."""
    name = profile or profile_name(environment)
    sections = [section for _, section in _sections(environment, name)]
    return any(section.get(key) for section in sections for key in OTHER_SOURCES)


def profile_name(environment: Mapping[str, str]) -> str:
    """Return the profile of the environment."""
    return environment.get("AWS_PROFILE") or "default"


def credentials_file(environment: Mapping[str, str]) -> str:
    """Return the name of the shared credentials file."""
    return environment.get("AWS_SHARED_CREDENTIALS_FILE") or _home(environment, "credentials")


def configuration_file(environment: Mapping[str, str]) -> str:
    """Return the name of AWS's configuration file."""
    return environment.get("AWS_CONFIG_FILE") or _home(environment, "config")


def default_region(environment: Mapping[str, str], profile: str | None = None) -> str:
    """Return the region: of variables, else of the profile, else us-east-1."""
    named = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if named and profile is None:
        return named
    section = _section(configuration_file(environment), _in_config(profile or profile_name(environment)))
    return section.get("region") or named or DEFAULT_REGION


def _sections(environment: Mapping[str, str], name: str) -> list[tuple[Path, Mapping[str, str]]]:
    places = [(credentials_file(environment), name), (configuration_file(environment), _in_config(name))]
    return [(Path(path), _section(path, section)) for path, section in places]


def _in_config(profile: str) -> str:
    return "default" if profile == "default" else f"profile {profile}"


def _from(
    values: Mapping[str, str], key: str, secret: str, session: str, *, source: str, file: Path | None = None
) -> S3Credentials | None:
    if not (values.get(key) and values.get(secret)):
        return None
    token = values.get(session)
    return S3Credentials(
        Secret(values[key]),
        Secret(values[secret]),
        Secret(token) if token else None,
        file=file,
        source=source,
    )


def _home(environment: Mapping[str, str], name: str) -> str:
    return str(Path(environment.get("HOME", "/nonexistent"), ".aws", name))


def _section(path: str, section: str) -> Mapping[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(path, encoding="utf-8")
        return dict(parser[section])
    except (OSError, UnicodeDecodeError, configparser.Error, KeyError):
        return {}
