"""A disposable machine with systemd: this machine's root file system under an overlay, in namespaces.

Changes of the overlay are in memory and end with the machine. Its only network is loopback, it starts no
service of this machine, and it cannot change the kernel's settings.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support.processes import children

CGROUPS = Path("/sys/fs/cgroup")
START_SECONDS = 30.0

# $1 is an empty directory for the machine's files, $2 a directory that the machine sees as /mnt.
BOOT = """
set -eu
work=$1 shared=$2
mount -t tmpfs -o size=1g tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" "$work/root"
cd "$work/root"
mount -t proc proc proc
mount -t tmpfs tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs run
mount --bind "$shared" mnt
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    : > "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/shm dev/pts
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t sysfs -o ro sysfs sys
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mount -t cgroup2 cgroup2 sys/fs/cgroup
else
    mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
    mkdir sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
fi
ip link set lo up
rm -rf usr/lib/systemd/system/*.wants/* etc/systemd/system/*.wants usr/lib/systemd/system-generators/*
# Container images have it, so that packages start no service.
rm -f usr/sbin/policy-rc.d
mkdir .old
pivot_root . .old
umount -l /.old
rmdir /.old
mount --make-rshared /
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    /lib/systemd/systemd --system --log-target=null --show-status=no
"""

# Moves itself into the cgroup $1 and becomes the program after it.
ENTER = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
os.execvp(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Machine:
    """A machine whose systemd answers."""

    process_id: int

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command as root; return its standard output."""
        ended = self.attempt(*command)
        assert not check or ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def attempt(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command that may fail."""
        enter = ["nsenter", f"--target={self.process_id}", "--mount", "--net", "--pid", "--ipc", "--uts"]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
        words = [*enter, "--root", "--wd", "--", *command]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", "--property", name, "--value", unit).strip()


def why_no_machine() -> str | None:
    """Return why this machine cannot start another one; None if it can."""
    needed = ("systemd-analyze", "unshare", "nsenter", "pivot_root", "ip")
    if missing := [name for name in needed if shutil.which(name) is None]:
        return f"{', '.join(missing)} is not installed"
    if not Path("/lib/systemd/systemd").exists():
        return "systemd is not installed"
    return (
        None if (CGROUPS / "systemd").is_dir() or (CGROUPS / "cgroup.controllers").exists() else "no cgroups"
    )


@contextmanager
def running_machine(directory: Path, shared: Path) -> Iterator[Machine]:
    """Start a machine with its files in memory below `directory`, and `shared` as its /mnt."""
    hierarchy = CGROUPS / "systemd" if (CGROUPS / "systemd").is_dir() else CGROUPS
    group = hierarchy / f"delta-gateway-tests-{time.monotonic_ns()}"
    group.mkdir()
    namespaces = ["--mount", "--pid", "--cgroup", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
    command = ["unshare", *namespaces, "sh", "-c", BOOT, "machine", str(directory), str(shared)]
    log = directory.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-IS", "-c", ENTER, str(group), *command], stdout=output, stderr=output
        )
    try:
        yield _started(process, log)
    finally:
        process.kill()
        process.wait()
        _remove(group)


def _started(process: subprocess.Popen[bytes], log: Path) -> Machine:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for child in children(process.pid):
            machine = Machine(child)
            with suppress(OSError):
                is_systemd = b"systemd" in Path(f"/proc/{child}/cmdline").read_bytes().partition(b"\0")[0]
                if is_systemd and machine.attempt("systemctl", "list-units").returncode == 0:
                    return machine
        time.sleep(0.1)
    raise RuntimeError(f"systemd does not answer: {log.read_text()}")


def _remove(group: Path) -> None:
    """Remove the cgroups of a machine once its processes have ended."""
    deadline = time.monotonic() + START_SECONDS
    while group.exists() and time.monotonic() < deadline:
        for path in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            with suppress(OSError):
                path.rmdir()
        with suppress(OSError):
            group.rmdir()
        time.sleep(0.05)
