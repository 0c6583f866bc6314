"""Makes the artefacts of a release in `dist/`, each by one command.

    python3 deploy/build.py wheel       a wheel for manylinux_2_28, and its locked dependencies
    python3 deploy/build.py sdist       the sources as pip installs them
    python3 deploy/build.py rootfs      the root file system of the container image
    python3 deploy/build.py deb         the Debian package
    python3 deploy/build.py chart       the Helm chart

The release workflow runs the same commands. Files have the time of SOURCE_DATE_EPOCH, by default that of the
last commit, and two builds are equal byte for byte. Tools come from uv.lock, into the cache of
`tests/run.py`. Needs a Rust toolchain for the wheel, and Debian 12 for `rootfs` and `deb`, Go for
the chart.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import platform
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import run  # noqa: E402 - found by the line above

DIST = ROOT / "dist"
MANYLINUX = "manylinux_2_28"
# Relative to the checkout, so that no path of the machine is in a binary.
HOME = Path.home()
CARGO_HOME = Path(os.environ.get("CARGO_HOME", HOME / ".cargo"))


def main() -> int:
    """Make the named artefacts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("artefacts", nargs="+", choices=ARTEFACTS, metavar="ARTEFACT")
    os.environ["SOURCE_DATE_EPOCH"] = epoch()
    DIST.mkdir(exist_ok=True)
    for name in parser.parse_args().artefacts:
        ARTEFACTS[name]()
    return 0


def epoch() -> str:
    """Return the time of all files in seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return given or run.output("git", "log", "-1", "--format=%ct").strip()


def wheel() -> None:
    """Build the wheel with zig as its linker, for every glibc from 2.28 on; on macOS with the system's."""
    release = run.release_environment()
    options = ["--release", "--locked", "--out", DIST]
    # zig links against the symbols of an older glibc than the machine has.
    compatible = ["--zig", "--compatibility", MANYLINUX] if sys.platform == "linux" else []
    paths = {CARGO_HOME: "cargo", ROOT: "."}
    flags = " ".join(f"--remap-path-prefix={path}={name}" for path, name in paths.items())
    variables = {
        "CARGO_TARGET_DIR": str(run.CACHE / "release-target"),
        "RUSTFLAGS": flags,
        "PATH": f"{release}{os.pathsep}{os.environ['PATH']}",
    }
    run.run(release / "maturin", "build", *options, *compatible, variables=variables)
    requirements()


def requirements() -> None:
    """Write the dependencies of a server with their hashes: `pip install --require-hashes -r`."""
    path = DIST / "requirements.txt"
    run.run(*run.export_command(), "--no-dev", "--no-annotate", "--no-header", "--output-file", path)


def sdist() -> None:
    """Build the source distribution."""
    run.run(run.release_environment() / "maturin", "sdist", "--out", DIST)


def rootfs() -> None:
    """Assemble the root file system of the image from the wheel in dist/."""
    directory = DIST / "rootfs"
    shutil.rmtree(directory, ignore_errors=True)
    script = ROOT / "deploy/image/rootfs.py"
    inputs = ["--wheel", linux_wheel(), "--requirements", DIST / "requirements.txt"]
    run.run(sys.executable, script, *inputs, directory)


def deb() -> None:
    """Build the Debian package of the wheel in dist/."""
    script = ROOT / "deploy/debian/package.py"
    inputs = ["--wheel", linux_wheel(), "--requirements", DIST / "requirements.txt"]
    run.run(sys.executable, script, *inputs, DIST)


def chart() -> None:
    """Package the chart, with the alerts and the dashboard of the Python package.

    `helm package` writes the time of the build into the archive, so the archive is made here.
    """
    with tempfile.TemporaryDirectory() as scratch:
        helm = run.go_program("helm")
        run.run(helm, "package", ROOT / "deploy/chart", "--destination", scratch)
        (packaged,) = Path(scratch).glob("*.tgz")
        with tarfile.open(packaged) as archive:
            members = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
            contents = {name: file.read() for name, file in members.items() if file is not None}
    write_archive(DIST / packaged.name, contents)


def write_archive(path: Path, contents: Mapping[str, bytes]) -> None:
    """Write a compressed archive whose bytes depend on the contents and SOURCE_DATE_EPOCH only."""
    seconds = int(os.environ["SOURCE_DATE_EPOCH"])
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=seconds) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), seconds, 0o644
            archive.addfile(member, io.BytesIO(content))


def linux_wheel() -> Path:
    """Return the wheel of this machine in dist/."""
    wheels = sorted(DIST.glob(f"*-manylinux*_{platform.machine()}.whl"))
    if len(wheels) != 1:
        sys.exit(f"{len(wheels)} wheels of this machine are in {DIST}; `deploy/build.py wheel` makes one")
    return wheels[0]


ARTEFACTS: Mapping[str, Callable[[], None]] = {
    "wheel": wheel,
    "sdist": sdist,
    "rootfs": rootfs,
    "deb": deb,
    "chart": chart,
}

if __name__ == "__main__":
    sys.exit(main())
