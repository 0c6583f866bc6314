"""Loads one file into a `Config` and warns about settings that surprise providers."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import yaml

from gateway.config.checks import name_warnings
from gateway.config.directory_access import directory_problems
from gateway.config.errors import ConfigError
from gateway.config.networks import is_loopback
from gateway.config.projection_directories import projection_problems
from gateway.config.reader import Reader
from gateway.config.roots import readable_directories
from gateway.config.secret import Secret
from gateway.config.sections import Config
from gateway.config.yaml_loader import compose, fault

log = logging.getLogger("gateway.config")

SPARK_SHORTEST_LIFETIME_SECONDS = 900
LEAST_TOKEN_CHARACTERS = 16
UNSPECIFIED_HOSTS = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound to


def load(
    path: str | Path, environment: Mapping[str, str] = os.environ, *, needs_readers: bool = True
) -> Config:
    """Read and validate a file. Raises ConfigError, with `needs_readers` also without any recipient."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as reason:
        raise ConfigError(str(path), "", f"cannot be read: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(str(path), "", "is no UTF-8 text") from None
    return loads(
        text,
        file=str(path),
        directory=path.absolute().parent,
        environment=environment,
        needs_readers=needs_readers,
    )


def loads(
    text: str,
    *,
    file: str = "configuration",
    directory: Path = Path("/"),
    environment: Mapping[str, str] = os.environ,
    needs_readers: bool = True,
    known_secrets: Mapping[str, Secret] = MappingProxyType({}),
) -> Config:
    """Read and validate the text of a file. Raises ConfigError.

    `known_secrets`: the secrets of files, by their paths, in place of what is in them now.
    """
    reader = Reader(file, directory, environment, Config, known_secrets)
    try:
        return _loaded(text, reader, needs_readers=needs_readers)
    except ConfigError as error:
        error.secret_files = reader.secret_files
        raise


def _loaded(text: str, reader: Reader, *, needs_readers: bool) -> Config:
    file = reader.file
    try:
        node = compose(text)
    except (yaml.YAMLError, RecursionError) as reason:
        line, said = fault(reason)
        raise ConfigError(file if line is None else f"{file}:{line}", "", said) from None
    if node is None:
        raise ConfigError(file, "", "is empty; a file begins with `version: 1`")
    reader.read_accounts(node)
    config: Config = reader.section(Config, node, "")
    config = replace(
        config,
        secret_files=tuple(reader.secret_files),
        secret_stamp=tuple(reader.secret_files.values()),
        secrets=reader.secrets,
        directory=reader.directory,
        text=text,
    )
    if needs_readers and not config.readers:
        raise ConfigError(
            file,
            "gateway",
            "no recipient could read: add one by `delta-gateway recipient add`, give gateway.recipients or "
            "authorization.bearerToken, or gateway.anonymous: true to share with everyone",
        )
    admin = config.gateway.admin
    if admin is not None and admin.port == config.port != 0 and _overlap(admin.host, config.host):
        raise ConfigError(file, "gateway.admin.port", f"{admin.port} is the port of the server; give another")
    leaks = (problem for _, problem in directory_problems(config))
    for leak in chain(leaks, projection_problems(config)):
        raise ConfigError(file, "shares", leak)
    _warn(config, file)
    return config


def _overlap(first: str, second: str) -> bool:
    """Return whether two hosts have an address in common, as far as their texts say."""
    hosts = {"127.0.0.1" if host == "localhost" else host for host in (first, second)}
    # It has no address of IPv6, and `::` has all of both.
    if "0.0.0.0" in hosts and "::" not in hosts:  # noqa: S104 - compared with, not bound to
        return not any(":" in host for host in hosts)
    return len(hosts) == 1 or not hosts.isdisjoint(UNSPECIFIED_HOSTS)


def _warn(config: Config, file: str) -> None:
    if config.pre_signed_url_timeout_seconds <= SPARK_SHORTEST_LIFETIME_SECONDS:
        log.warning("%s: Spark clients refuse URLs that live 15 minutes or less", file)
    token = "" if config.authorization is None else config.authorization.bearer_token.reveal()
    if token and len(token) < LEAST_TOKEN_CHARACTERS:
        log.warning("%s: authorization.bearerToken can be guessed; `delta-gateway token` makes one", file)
    if not config.gateway.token_keys:
        log.warning(
            "%s: gateway.tokenKeys is missing: page tokens, access tokens and local URLs end with this "
            "process and are unknown to other replicas",
            file,
        )
    if config.prefix and config.public_url.endswith(config.prefix):
        log.warning("%s: gateway.publicUrl ends in the endpoint: profiles name %s", file, config.endpoint_url)
    if (shared := _shared_credentials(config)) is not None:
        log.warning(
            "%s: %s with directory access or volumes: all who use it get the same temporary credentials, "
            "which read the directories until they end",
            file,
            shared,
        )
    admin = config.gateway.admin
    if admin is not None and admin.ssl is None and not is_loopback(admin.host):
        log.warning(
            "%s: gateway.admin.ssl is missing: the admin's token passes '%s' in the clear", file, admin.host
        )
    _warn_of_names(config, file)
    local = any(location.kind == "file" for location in config.locations)
    is_nowhere = config.host in UNSPECIFIED_HOSTS or config.port == 0
    if local and is_nowhere and config.gateway.public_url is None:
        log.warning(
            "%s: gateway.publicUrl is missing: URLs of local tables will begin with %s",
            file,
            config.public_url,
        )


def _warn_of_names(config: Config, file: str) -> None:
    for share in config.shares:
        schemas = {schema.name: [table.name for table in schema.tables] for schema in share.schemas}
        names = (share.name, *schemas, *chain.from_iterable(schemas.values()))
        for warning in name_warnings(names):
            log.warning("%s: %s", file, warning)


def _shared_credentials(config: Config) -> str | None:
    """Return the key that gives temporary credentials to clients without recipients of their own."""
    keys = {
        "gateway.anonymous": config.gateway.anonymous,
        "authorization.bearerToken": config.authorization is not None,
    }
    has_directories = any(True for _ in readable_directories(config))
    return next((key for key, is_given in keys.items() if is_given and has_directories), None)
