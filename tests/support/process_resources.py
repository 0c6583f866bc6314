"""Resources of a gateway's process: memory, open files, sockets."""

from contextlib import suppress
from pathlib import Path

from support.gateway_process import RunningGateway


def resident(gateway: RunningGateway) -> int:
    return int(Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[1]) * 4096


def open_files(gateway: RunningGateway) -> int:
    return len(descriptors(gateway))


def open_sockets(gateway: RunningGateway) -> int:
    """Listening sockets and connections."""
    return sum(link.startswith("socket:") for link in descriptors(gateway))


def descriptors(gateway: RunningGateway) -> list[str]:
    found = []
    for descriptor in Path(f"/proc/{gateway.process.pid}/fd").iterdir():
        # One may be closed while they are listed.
        with suppress(FileNotFoundError):
            found.append(str(descriptor.readlink()))
    return found
