"""Reads YAML nodes into frozen dataclasses, by the dataclass's types.

A field `page_size_limit: int` is the key `pageSizeLimit`; nested dataclasses are maps, `tuple[X, ...]` are
lists, and `Mapping[str, str]` is a map with any names. Scalars are parsed by the field's type, not by YAML's
guess: a share may be called `no` or `2024`. `${NAME}` in a scalar is an environment variable (`$${` is a
plain `${`). A section with a `TEXT_FIELD` may be written as the text of that field, and a list whose field
has a `map_form` as the map of another field. A `Secret` may also come from a file, by the key with the suffix
`File`. An unknown key is a warning, unless it resembles a key that protects or its section refuses unknown
keys: then it is an error, because the server would be more open than its file says.
"""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import difflib
import logging
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from gateway.config.errors import ConfigError, Invalid, shown, shown_key
from gateway.config.file_stamps import FileStamp, file_stamp
from gateway.config.key_paths import LEAST_RATIO, nearest_paths, right_paths
from gateway.config.known_keys import camel_case, forms_of, known_keys, types_of
from gateway.config.location_template import LocationTemplate
from gateway.config.locations import AZURE_DOMAIN, AZURE_DOMAINS, Location, check_account
from gateway.config.secret import Secret
from gateway.config.yaml_loader import MERGE_KEY
from gateway.encoding import is_utf_8

log = logging.getLogger("gateway.config")

_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
# Python's parsers accept digits of other scripts, and `nan` and `inf`, which pass comparisons with limits.
# The reference server reads `version: 1.0`, too.
_INTEGER = re.compile(r"([-+]?[0-9]{1,30}(?:_[0-9]{1,30}){0,9})(?:\.0{1,9})?")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
# The keys of an entry that decide where a token of Azure is sent, or which one.
_REACHES = (
    "endpoint",
    "accountKey",
    "accountKeyFile",
    "clientSecret",
    "clientSecretFile",
    "federatedTokenFile",
    "identity",
)
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")

NO_UTF_8 = "has half of a surrogate pair, which is no UTF-8"
LARGEST = {int: 2**53, float: 1e9}
"""The maximum of numbers without their own: beyond it, native code and timers overflow."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the nodes of one file.

    Attributes:
        file: the name of the file, for messages.
        directory: relative file names are relative to it.
        environment: the variables that `${NAME}` may name.
        top: the section of a whole file, among whose keys misplaced ones are looked for.
        known_secrets: the secrets of files that are not read, by their paths.
        secret_files: the files with secrets, with their state before they were read.
        secrets: the secrets of these files.
        accounts: the accounts of prefixes whose form names none, such as `az://container/`.
        private_clouds: the prefixes in unknown domains of Azure, with whether their entries describe how they
            are reached.

    """

    file: str
    directory: Path
    environment: Mapping[str, str]
    top: type
    known_secrets: Mapping[str, Secret] = dataclasses.field(default_factory=dict)
    secret_files: dict[Path, FileStamp | None] = dataclasses.field(default_factory=dict)
    secrets: dict[str, Secret] = dataclasses.field(default_factory=dict)
    accounts: dict[Location, str] = dataclasses.field(default_factory=dict)
    private_clouds: dict[Location, bool] = dataclasses.field(default_factory=dict)

    def read_accounts(self, top: yaml.Node) -> None:
        """Find the accounts and domains of Azure in `gateway.storages`, which other locations need.

        What is wrong there is reported when the section is read.
        """
        storages = _child(_child(top, "gateway"), "storages")
        for entry in storages.value if isinstance(storages, yaml.SequenceNode) else ():
            prefix, account = _child(entry, "prefix"), _child(entry, "account")
            if not isinstance(prefix, yaml.ScalarNode):
                continue
            with contextlib.suppress(ValueError):
                location = Location.parse(self._text(prefix, "prefix"))
                if location.is_in_unknown_cloud:
                    self.private_clouds[location] = any(_has_value(_child(entry, key)) for key in _REACHES)
                elif location.lacks_account and account is not None:
                    self.accounts[location] = check_account(self._text(account, "account"))

    def section(self, kind: Any, node: yaml.Node, key: str) -> Any:
        """Read a map as the dataclass `kind`, or as one of the forms of a union."""
        if not isinstance(node, yaml.MappingNode):
            accepted = getattr(kind, "EXPECTED", None) or ", ".join(known_keys(kind))
            raise self.error(node, key, f"expected a map of keys; accepted: {accepted}")
        known, hints = known_keys(kind), types_of(kind)
        values: dict[str, Any] = {}
        nodes: dict[str, yaml.Node] = {}
        for name, key_node, value_node in self._entries(node, key):
            field, secret_file = self._field(known, hints, name)
            if field is None:
                self._unknown(kind, key_node, _join(key, name), known)
            elif field.name in nodes:
                raise self.error(key_node, _join(key, name), "given twice, directly and by its file")
            elif _is_null(value_node):
                if field.metadata.get("protects"):
                    self._require_optional(hints[field.name], value_node, _join(key, name))
            else:
                field = _form_of(kind, field, value_node)
                nodes[field.name] = value_node
                read = self._secret_file if secret_file else self.value
                values[field.name] = read(hints[field.name], value_node, _join(key, name), field.metadata)
        for name, field in known.items():
            if field.name not in values and _required(field):
                raise self.error(node, _join(key, name), "must be given")
        common, *forms = forms_of(kind)
        try:
            return common.made(forms, values) if forms else kind(**values)
        except Invalid as invalid:
            raise self._invalid(nodes.get(invalid.field, node), key, invalid) from None

    def value(self, hint: Any, node: yaml.Node, key: str, limits: Mapping[str, Any]) -> Any:
        """Read a value of type `hint`, within the field's limits."""
        form, *alternatives = forms_of(hint)
        if alternatives:
            return self.section(hint, node, key)
        hint, origin = form, typing.get_origin(form)
        if origin is tuple:
            return self._items(typing.get_args(hint)[0], node, key, limits)
        if origin is collections.abc.Mapping:
            return self._texts(node, key)
        if dataclasses.is_dataclass(hint) and isinstance(hint, type) and hint not in _SCALARS:
            text_field = getattr(hint, "TEXT_FIELD", None)
            if text_field is not None and isinstance(node, yaml.ScalarNode):
                kind = types_of(hint)[text_field]
                try:
                    return hint(**{text_field: self.value(kind, node, key, limits)})
                except Invalid as invalid:
                    raise self.error(node, key, str(invalid)) from None
            return self.section(hint, node, key)
        text = self._text(node, key)
        try:
            value = _SCALARS[hint](text) if origin is None else _choice(text, typing.get_args(hint))
            _check_limits(value, limits)
            if isinstance(value, Location):
                value = self.located(value)
            elif isinstance(value, LocationTemplate):
                value = dataclasses.replace(value, root=self.located(value.root))
        except ValueError as reason:
            raise self.error(node, key, str(reason)) from None
        return self.directory / value if isinstance(value, Path) else value

    def _require_optional(self, hint: Any, node: yaml.Node, key: str) -> None:
        """Raise ConfigError for a key without a value, unless it is a section that may have no keys."""
        if not _is_section(hint):
            raise self.error(node, key, "has no value; give one or leave the key out")
        self.value(hint, yaml.MappingNode("", [], node.start_mark), key, {})

    def error(self, node: yaml.Node | None, key: str, message: str) -> ConfigError:
        """Make the error that names the place of a node."""
        return ConfigError(self._place(node), key, message)

    def _invalid(self, node: yaml.Node, key: str, invalid: Invalid) -> ConfigError:
        name = _join(key, camel_case(invalid.field))
        if invalid.index is not None and isinstance(node, yaml.SequenceNode):
            return self.error(node.value[invalid.index], f"{name}[{invalid.index}]", str(invalid))
        return self.error(node, name, str(invalid))

    def located(self, location: Location) -> Location:
        """Return a location with its account. Raises ValueError without one, and for an unknown cloud."""
        completed = self._with_account(location)
        self._check_cloud(completed)
        return completed

    def _with_account(self, location: Location) -> Location:
        """Add the account to a location whose form names none. Raises ValueError without one."""
        if not location.lacks_account:
            return location
        holding = [prefix for prefix in self.accounts if prefix.contains(location)]
        if not holding:
            raise ValueError(
                f"az://{location.bucket} names no account; give "
                f"abfss://{location.bucket}@account.dfs.core.windows.net/..., or an entry of "
                f"gateway.storages with the prefix az://{location.bucket}/ and its `account`"
            )
        account = self.accounts[max(holding, key=lambda prefix: len(prefix.key))]
        return dataclasses.replace(location, account=account, domain=AZURE_DOMAIN)

    def _check_cloud(self, location: Location) -> None:
        """Raise ValueError for a domain that may be mistyped: its hosts would get the identity's token."""
        if not location.is_in_unknown_cloud:
            return
        holding = [prefix for prefix in self.private_clouds if prefix.contains(location)]
        if not holding or not self.private_clouds[max(holding, key=lambda prefix: len(prefix.key))]:
            raise ValueError(
                f"'{location.domain}' is no domain of Azure; accepted: {', '.join(AZURE_DOMAINS)}; another "
                "one needs an entry of gateway.storages whose prefix has it, with `endpoint` or an identity"
            )

    def _items(self, kind: Any, node: yaml.Node, key: str, limits: Mapping[str, Any]) -> tuple[Any, ...]:
        if not isinstance(node, yaml.SequenceNode):
            raise self.error(node, key, "expected a list: [a, b], or lines that begin with -")
        return tuple(
            self.value(kind, item, f"{key}[{index}]", limits) for index, item in enumerate(node.value)
        )

    def _texts(self, node: yaml.Node, key: str) -> dict[str, str]:
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, key, "expected a map of names and texts")
        texts = {}
        for name, _, value in self._entries(node, key):
            if _is_null(value):
                raise self.error(value, _join(key, name), "has no text")
            texts[name] = self._text(value, _join(key, name))
        return texts

    def _secret_file(self, _hint: Any, node: yaml.Node, key: str, _limits: Mapping[str, Any]) -> Secret:
        path: Path = self.value(Path, node, key, {})
        # The state before the file is read, so that a change during the read is noticed.
        self.secret_files[path] = file_stamp(path)
        secret = self.known_secrets.get(str(path))
        try:
            if secret is None:
                # An editor may have put a byte order mark before it.
                secret = Secret(path.read_text(encoding="utf-8-sig").rstrip("\r\n"))
        except (OSError, UnicodeDecodeError) as error:
            # The value is not named: it may be the secret itself, by mistake.
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            expected = f"expected the path of a readable text file with the secret: {reason}"
            raise self.error(node, key, expected) from None
        if not secret.reveal():
            raise self.error(node, key, "the file is empty; expected the secret")
        self.secrets[str(path)] = secret
        return secret

    def _text(self, node: yaml.Node, key: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self.error(node, key, "expected a single value")

        def replace(match: re.Match[str]) -> str:
            name = match.group(1)
            if name is None:
                return "${"
            if name not in self.environment:
                # Text of a secret between braces is no name.
                known = f"the environment variable {name}" if name.isidentifier() else "a variable"
                raise self.error(node, key, f"{known} is not set")
            return self.environment[name]

        text = _VARIABLE.sub(replace, node.value)
        if not is_utf_8(text):
            raise self.error(node, key, NO_UTF_8)
        return text

    def _entries(self, node: yaml.MappingNode, key: str) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        seen: set[str] = set()
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.error(key_node, key, "expected plain text as a key")
            if key_node.tag == MERGE_KEY:
                raise self.error(key_node, key, "YAML's merge key << is not read; write the keys out")
            if not is_utf_8(key_node.value):
                raise self.error(key_node, key, NO_UTF_8)
            if key_node.value in seen:
                raise self.error(key_node, _join(key, shown_key(key_node.value)), "given twice")
            seen.add(key_node.value)
            yield key_node.value, key_node, value_node

    @staticmethod
    def _field(
        known: Mapping[str, dataclasses.Field[Any]], hints: Mapping[str, Any], name: str
    ) -> tuple[dataclasses.Field[Any] | None, bool]:
        if name in known:
            return known[name], False
        field = known.get(name.removesuffix("File"))
        if name.endswith("File") and field is not None and _is_secret(hints[field.name]):
            return field, True
        return None, False

    def _unknown(
        self, kind: Any, node: yaml.Node, key: str, known: Mapping[str, dataclasses.Field[Any]]
    ) -> None:
        """Warn of an unknown key.

        Raises ConfigError if the section refuses it, or if it resembles a key that protects, or is one of
        another level.
        """
        above, _, name = key.rpartition(".")
        key = _join(above, shown_key(name))
        spellings = {name.lower(): name for name in known}
        near = difflib.get_close_matches(name.lower(), spellings, n=1)
        nearest = spellings[near[0]] if near else ""
        if nearest and known[nearest].metadata.get("protects"):
            reason = f"unknown key; did you mean {nearest}?; without {nearest} the server would be more open"
            raise self.error(node, key, reason)
        if getattr(kind, "REFUSES_UNKNOWN_KEYS", False):
            raise self.error(node, key, f"unknown key; accepted: {', '.join(known)}")
        elsewhere, protects = right_paths(self.top, name)
        if protects:
            meant = f"did you mean {nearest}? Otherwise " if nearest else ""
            reason = f"{meant}the key belongs to {elsewhere}; without it there the server would be more open"
            raise self.error(node, key, reason)
        # `share` is a misspelt `shares` rather than the key of a grant.
        misspelt = difflib.get_close_matches(name.lower(), near, cutoff=LEAST_RATIO) and nearest
        nearest = misspelt or elsewhere or nearest or nearest_paths(self.top, name)
        hint = f"; did you mean {nearest}?" if nearest else ""
        log.warning("%s: unknown key %s is ignored%s", self._place(node), key, hint)

    def _place(self, node: yaml.Node | None) -> str:
        # A node that was made from a value has no line.
        is_in_text = node is not None and node.start_mark is not None
        return f"{self.file}:{node.start_mark.line + 1}" if node is not None and is_in_text else self.file


def _form_of(kind: type, field: dataclasses.Field[Any], node: yaml.Node) -> dataclasses.Field[Any]:
    """Return the field that a key's value belongs to: a map in the place of a list may have its own."""
    other = field.metadata.get("map_form")
    if other is None or not isinstance(node, yaml.MappingNode):
        return field
    return next(known for known in dataclasses.fields(kind) if known.name == other)


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _has_value(node: yaml.Node | None) -> bool:
    return isinstance(node, yaml.ScalarNode) and not _is_null(node) and node.value.lower() != "auto"


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _is_secret(hint: Any) -> bool:
    return hint is Secret or Secret in typing.get_args(hint)


def _is_section(hint: Any) -> bool:
    return any(dataclasses.is_dataclass(kind) for kind in (hint, *typing.get_args(hint)))


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _integer(text: str) -> int:
    whole = _INTEGER.fullmatch(text)
    if whole is None:
        raise ValueError(f"{shown(text)} is not a whole number")
    return int(whole[1])


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a number")
    return float(text)


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"{shown(text)} is neither true nor false")


def _instant(text: str) -> datetime:
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{shown(text)} is not an ISO-8601 time such as 2027-06-30T00:00:00Z") from None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _file(text: str) -> Path:
    # A path of these would be that of a directory such as `postgresql:`, or the configuration's directory.
    if "://" in text:
        raise ValueError("is a URL; accepted: a path of a file")
    if not text or "\0" in text:
        raise ValueError("is no path of a file" if text else "may not be empty")
    return Path(text)


def _choice(text: str, accepted: tuple[str, ...]) -> str:
    for word in accepted:
        if text.lower() == word.lower():
            return word
    raise ValueError(f"{shown(text)} is not accepted; accepted: {', '.join(accepted)}")


def _check_limits(value: Any, limits: Mapping[str, Any]) -> None:
    minimum, maximum = limits.get("minimum"), limits.get("maximum")
    if maximum is None:
        maximum = LARGEST.get(type(value))
    if minimum is not None and value < minimum:
        raise ValueError(f"{value} is too small; accepted: {minimum} or more")
    if maximum is not None and value > maximum:
        raise ValueError(f"{value} is too large; accepted: up to {maximum}")
    if value == "" or (isinstance(value, Secret) and not value.reveal()):
        raise ValueError("may not be empty")


_SCALARS: Mapping[Any, Callable[[str], Any]] = {
    str: str,
    int: _integer,
    float: _number,
    bool: _boolean,
    datetime: _instant,
    Secret: Secret,
    Path: _file,
    Location: Location.parse,
    LocationTemplate: LocationTemplate.parse,
}
