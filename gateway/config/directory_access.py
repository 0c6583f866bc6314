"""Which tables may offer directory access, and which directories may be volumes: by temporary credentials.

A credential gives access to whole directories, so a combination that would show more than the table is
refused when a configuration is loaded. A volume shares no file with a table or with another volume, in any
share; one directory may be a volume of several shares. Each message names the table or the volume, and the
change that resolves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gateway.config.errors import ConfigError, shown
from gateway.config.locations import Location
from gateway.config.networks import Network, parse_networks
from gateway.config.projection_directories import projection_directories, within
from gateway.config.recipients import EVERY_SHARE, RecipientEntry
from gateway.config.roots import DIRECTORY, Holder, Roots, comparable
from gateway.config.sections import Config
from gateway.config.shares import ShareEntry, TableEntry
from gateway.config.storages.session_policy import MAX_POLICY_CHARACTERS

WITHOUT = "or remove dir from accessModes"
APART = f"move one of them, {WITHOUT}"
MOVE = "move one of them, or remove the volume"

LimitedRecipient = tuple[RecipientEntry, tuple[Network, ...]]
"""A recipient with its networks."""


def directory_problems(config: Config) -> Iterator[tuple[Holder, str]]:
    """Iterate over volumes and tables that no credential may read, each with the reason and what to do.

    Of a volume in the directory of a table, the volume comes first.
    """
    roots, limited, projections = Roots(config), _limited_recipients(config), projection_directories(config)
    for share, name, volume in config.volumes:
        if outer := projections.containing(volume.location):
            yield (True, name), f"the volume {name} cannot be shared: {within(outer)}; {MOVE}"
        for problem in _credential_problems(config, volume.location, share.name, limited, kind="volume"):
            yield (True, name), f"the volume {name} cannot be shared: {problem}"
        for problem in roots.overlaps((True, name), [comparable(config, volume.location)]):
            yield (True, name), f"the volume {name} cannot be shared: {problem}; {MOVE}"
    for share, name, table in config.tables:
        if DIRECTORY in table.access_modes:
            for problem in _problems_of(config, share.name, table, limited):
                yield (False, name), f"{name} cannot offer directory access: {problem}"
            locations = [comparable(config, root) for root in table.roots]
            for problem in roots.overlaps((False, name), locations):
                yield (False, name), f"{name} cannot offer directory access: {problem}; {APART}"


def _credential_problems(
    config: Config, location: Location, share: str, limited: Sequence[LimitedRecipient], *, kind: str
) -> Iterator[str]:
    """Iterate over the reasons why recipients of a share can get no credential for a root.

    `kind`: the word for the table or the volume.
    """
    entry = config.gateway.storage(location)
    problem = entry.root_problem(location)
    if problem is not None:
        yield problem
    for recipient, networks in limited:
        problem = entry.networks_problem(networks)
        if problem is not None and _is_granted(recipient, share):
            yield (
                f"{problem}, and the recipient {recipient.name} has networks; share the {kind} with it in "
                "another share"
            )


def _limited_recipients(config: Config) -> list[LimitedRecipient]:
    """Return the recipients of the configuration with networks."""
    return [
        (recipient, parse_networks(recipient.networks))
        for recipient in config.gateway.recipients
        if recipient.networks
    ]


def _problems_of(
    config: Config, share: str, table: TableEntry, limited: Sequence[LimitedRecipient]
) -> Iterator[str]:
    if not table.history_shared:
        yield f"its directory has the whole history; set historyShared: true, {WITHOUT}"
    if table.start_version > 0:
        yield f"its directory has the versions before startVersion; remove startVersion, {WITHOUT}"
    for root in table.roots:
        for problem in _credential_problems(config, root, share, limited, kind="table"):
            yield f"{problem}, {WITHOUT}"
    for root in table.auxiliary_locations:
        if not any(allowed.contains(root) for allowed in config.gateway.allowed_roots):
            yield f"gateway.allowedRoots contains no {shown(root.url)}, one of its auxiliaryLocations; add it"


def _is_granted(recipient: RecipientEntry, share: str) -> bool:
    """Return whether a recipient of the configuration may read a share or tables of it as a whole."""
    granted = {grant.share.casefold() for grant in recipient.shares if grant.condition is None}
    return EVERY_SHARE in granted or share.casefold() in granted


def check_session_policies(config: Config, file: str = "configuration") -> None:
    """Check that the policy of each directory fits for all configured recipients. Raises ConfigError."""
    for _, problem in session_policy_problems(config, config.shares):
        raise ConfigError(file, "shares", problem)


def session_policy_problems(config: Config, shares: Iterable[ShareEntry]) -> Iterator[tuple[Holder, str]]:
    """Iterate over tables and volumes with too long a policy for a configured recipient, with the reason."""
    limited = _limited_recipients(config)
    for share in shares:
        granted = [recipient for recipient in limited if _is_granted(recipient[0], share.name)]
        # If the policy with the longest networks fits, the policies of all recipients do.
        longest = max(granted, key=lambda recipient: _length_of(recipient[1]), default=None)
        for schema in share.schemas:
            for table in schema.tables:
                if DIRECTORY in table.access_modes:
                    name = f"{share.name}.{schema.name}.{table.name}"
                    for location in table.roots:
                        for problem in _policy_problems(config, location, longest):
                            yield (False, name), f"{name} {problem}"
            for volume in schema.volumes:
                name = f"{share.name}.{schema.name}.{volume.name}"
                for problem in _policy_problems(config, volume.location, longest):
                    yield (True, name), f"the volume {name} {problem}"


def _policy_problems(config: Config, location: Location, longest: LimitedRecipient | None) -> Iterator[str]:
    length = config.gateway.storage(location).policy_length(location, longest[1] if longest else ())
    if length > MAX_POLICY_CHARACTERS:
        who = f" for the networks of the recipient {longest[0].name}" if longest else ""
        yield (
            f"cannot have temporary credentials: the session policy{who} has {length} characters, and token "
            f"services accept {MAX_POLICY_CHARACTERS}; shorten its path"
            + (", or merge the networks" if longest else "")
        )


def _length_of(networks: tuple[Network, ...]) -> int:
    return sum(len(f'"{network}",') for network in networks)
