"""Keys of AWS that are written down: in variables, or in the files of the shared configuration.

In: the environment. Out: the keys of `AWS_ACCESS_KEY_ID` / `AWS_SECRET_ACCESS_KEY` / `AWS_SESSION_TOKEN`, or
of a profile in the shared credentials file (`AWS_SHARED_CREDENTIALS_FILE`, else `~/.aws/credentials`) or the
configuration file (`AWS_CONFIG_FILE`, else `~/.aws/config`). Other keys of a profile are read by `profiles`.
"""

from __future__ import annotations

import codecs
import configparser
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from gateway.config.secret import Secret
from gateway.storage.credentials import CredentialsUnavailable, check_header

DEFAULT_REGION = "us-east-1"
SUPPORTED = (
    "gateway.storages with accessKeyId and secretAccessKey; the variables AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY; a profile with keys, a role, a single sign-on or a credential process; a role of "
    "a web identity, a container or an instance"
)
OTHER_SOURCES = ("role_arn", "sso_session", "sso_start_url", "credential_process", "web_identity_token_file")
"""Keys of a profile whose credentials are requested."""
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})", re.ASCII)


@dataclass(frozen=True, slots=True)
class S3Credentials:
    """Credentials that sign URLs, with their expiry."""

    access_key_id: Secret
    secret_access_key: Secret
    session_token: Secret | None = None
    expires: datetime | None = None
    file: Path | None = None
    """The shared credentials file with these keys; other programs may replace its content."""
    source: str = field(default="", compare=False)


def default_credentials(environment: Mapping[str, str], profile: str | None = None) -> S3Credentials | None:
    """Return the keys of variables or of a profile, if there are any. A `profile` excludes variables.

    Raises CredentialsUnavailable for keys that no header can have, and for files that do not parse.
    """
    if profile is None:
        credentials = _from(
            environment,
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            place="the variable {}",
        )
        if credentials is not None:
            return replace(credentials, expires=_end(environment))
    if needs_requests(environment, profile):
        return None
    name = profile or profile_name(environment)
    for path, section in _sections(environment, name):
        credentials = _from(
            section,
            "aws_access_key_id",
            "aws_secret_access_key",
            "aws_session_token",
            place=f"{{}} of the profile {name} of {path}",
            source=f"the profile {name} of {path}",
            file=path,
        )
        if credentials is not None:
            return credentials
    return None


def needs_requests(environment: Mapping[str, str], profile: str | None = None) -> bool:
    """Return whether a profile names a role or another source of credentials that are requested."""
    name = profile or profile_name(environment)
    sections = [section for _, section in _sections(environment, name)]
    return any(section.get(key) for section in sections for key in OTHER_SOURCES)


def profile_name(environment: Mapping[str, str]) -> str:
    return environment.get("AWS_PROFILE") or "default"


def credentials_file(environment: Mapping[str, str]) -> str:
    """Return the name of the shared credentials file."""
    return _file(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials")


def configuration_file(environment: Mapping[str, str]) -> str:
    """Return the name of AWS's configuration file."""
    return _file(environment, "AWS_CONFIG_FILE", "config")


def default_region(environment: Mapping[str, str], profile: str | None = None) -> str:
    """Return the region: of variables, else of the profile, else us-east-1.

    A file that does not parse names none: `checked_region` has its error.
    """
    try:
        return checked_region(environment, profile)
    except CredentialsUnavailable:
        return DEFAULT_REGION


def checked_region(environment: Mapping[str, str], profile: str | None = None) -> str:
    """Return the same. Raises CredentialsUnavailable for one that no header can have, and for a bad file."""
    named = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if not named or profile is not None:
        path = configuration_file(environment)
        section = _section(path, *_in_config(profile or profile_name(environment)))
        if section.get("region"):
            return check_header(section["region"], f"region of {path}")
    return check_header(named or DEFAULT_REGION, "the variable AWS_REGION or AWS_DEFAULT_REGION")


def _sections(environment: Mapping[str, str], name: str) -> list[tuple[Path, Mapping[str, str]]]:
    places = [(credentials_file(environment), [name]), (configuration_file(environment), _in_config(name))]
    return [(Path(path), _section(path, *titles)) for path, titles in places]


def _in_config(profile: str) -> list[str]:
    """Return the titles of a profile's section; the first one that is there counts."""
    return [f"profile {profile}", *(["default"] if profile == "default" else [])]


def _from(
    values: Mapping[str, str],
    key: str,
    secret: str,
    session: str,
    *,
    place: str,
    source: str = "",
    file: Path | None = None,
) -> S3Credentials | None:
    """Return the keys of three names; `place` describes a name to the operator."""
    if not (values.get(key) and values.get(secret)):
        return None
    texts = {
        name: check_header(values.get(name) or "", place.format(name)) for name in (key, secret, session)
    }
    return S3Credentials(
        Secret(texts[key]),
        Secret(texts[secret]),
        Secret(texts[session]) if texts[session] else None,
        file=file,
        source=source or place.format(key),
    )


def _end(environment: Mapping[str, str]) -> datetime | None:
    """Return the end of the keys of variables, as `aws configure export-credentials` writes it."""
    variable = "AWS_CREDENTIAL_EXPIRATION"
    text = environment.get(variable)
    if not text:
        return None
    try:
        end = datetime.fromisoformat(text)
    except ValueError:
        raise CredentialsUnavailable(f"the variable {variable} is no ISO 8601 time", lasting=True) from None
    return end if end.tzinfo else end.replace(tzinfo=UTC)


def _file(environment: Mapping[str, str], variable: str, name: str) -> str:
    """Return the path of a file. No shell may have read the variable, as in a unit of systemd."""
    home = environment.get("HOME", "/nonexistent")
    text = environment.get(variable) or f"~/.aws/{name}"
    path = _VARIABLE.sub(lambda match: environment.get(match[1] or match[2], match[0]), text)
    return str(Path(home, path[2:])) if path.startswith("~/") else path


def _section(path: str, *names: str) -> Mapping[str, str]:
    """Return the first section of a file that is there, of some names; nothing where none is.

    Raises CredentialsUnavailable, with the path, for a file that cannot be read or does not parse.
    """
    parser = configparser.ConfigParser(interpolation=None)
    try:
        content = Path(path).read_bytes()
        if content.startswith(codecs.BOM_UTF8):
            raise CredentialsUnavailable(
                f"{path} begins with a byte order mark; save it as UTF-8 without one"
            )
        parser.read_string(content.decode())
        # Names may have quotes, as AWS's own programs read them: [profile "a name"].
        titles = [(title, " ".join(shlex.split(title))) for title in parser.sections()]
        named = [forms[0] for name in names for forms in titles if name in forms]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise CredentialsUnavailable(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, configparser.Error) as error:
        # The text of an error may quote a secret.
        line = getattr(error, "lineno", None) or next(
            (number for number, _ in getattr(error, "errors", ())), None
        )
        place = f"line {line} of {path}" if line else path
        raise CredentialsUnavailable(f"{place} does not parse ({type(error).__name__})") from None
    return dict(parser[named[0]]) if named else {}
