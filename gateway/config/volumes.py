"""Which directories may be volumes: those whose credentials read nothing that is shared otherwise.

A volume shares no file with a table or with another volume, in any share. One directory may be a volume of
several shares. Each message names the volume and the change that resolves it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.directory_access import credential_problems, limited_recipients
from gateway.config.roots import Holder, Roots, comparable
from gateway.config.sections import Config

MOVE = "move one of them, or remove the volume"


def volume_problems(config: Config, roots: Roots) -> Iterator[tuple[Holder, str]]:
    """Iterate over the volumes that are no directories for one, each with the reason and what to do."""
    limited = limited_recipients(config)
    for share, name, volume in config.volumes:
        for problem in credential_problems(config, volume.location, share.name, limited, kind="volume"):
            yield (True, name), f"the volume {name} cannot be shared: {problem}"
        for problem in roots.overlaps((True, name), [comparable(config, volume.location)]):
            yield (True, name), f"the volume {name} cannot be shared: {problem}; {MOVE}"
