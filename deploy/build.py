"""Makes the artefacts of a release in `dist/`, each by one command.

    python3 deploy/build.py wheel       the wheel of a platform, and the locked dependencies of a server
    python3 deploy/build.py sdist       the sources as pip installs them
    python3 deploy/build.py rootfs      the root file system of the container image
    python3 deploy/build.py deb         the Debian package
    python3 deploy/build.py chart       the Helm chart
    python3 deploy/build.py sbom        the bill of materials, by CycloneDX, for Python and Rust
    python3 deploy/build.py licenses    the licences of all dependencies; fails for one that is not allowed
    python3 deploy/build.py crate       the crate of the log reader
    python3 deploy/build.py sums        SHA256SUMS of all files in dist/
    python3 deploy/build.py notes       prints what the changelog says about the version, once it has a date
    python3 deploy/build.py statements  refuses placeholders, names of another repository and relative links
    python3 deploy/build.py release --check     tries all of it that can be tried here; publishes nothing

The release workflow runs the same commands. Files have the time of SOURCE_DATE_EPOCH, by default that of the
last commit, and two builds are equal byte for byte. Tools come from uv.lock, into the cache of
`tests/run.py`. Needs a Rust toolchain for the wheel, and Debian 12 for `rootfs` and `deb`, Go for
the chart. DEBEMAIL is the address of who maintains the Debian package.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "deploy")]

import statements as stated  # noqa: E402 - as above
import tools  # noqa: E402 - found by the line above
from components import (  # noqa: E402 - as above
    Component,
    bill_of_materials,
    license_list,
    python_components,
    refused,
    rust_components,
)
from components import notices as crate_notices  # noqa: E402 - as above

DIST = ROOT / "dist"
SUMS = "SHA256SUMS"
NOTICES = "LICENSE-crates.txt"
# The oldest C libraries that the wheels of a platform run with.
COMPATIBLE = {"gnu": "manylinux_2_28", "musl": "musllinux_1_2"}
TARGET = "DELTA_GATEWAY_WHEEL_TARGET"
CARGO_HOME = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))


def main() -> int:
    """Make the named artefacts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("artefacts", nargs="+", choices=[*ARTEFACTS, RELEASE], metavar="ARTEFACT")
    parser.add_argument("--check", action="store_true", help="with `release`: publish nothing")
    arguments = parser.parse_args()
    os.environ["SOURCE_DATE_EPOCH"] = epoch()
    DIST.mkdir(exist_ok=True)
    if RELEASE in arguments.artefacts:
        if arguments.artefacts != [RELEASE] or not arguments.check:
            parser.error("a tag publishes, by its workflow; here it is `release --check`")
        return check()
    for name in arguments.artefacts:
        ARTEFACTS[name]()
    return 0


def check() -> int:
    """Try all parts of a release that can be tried on this machine; return 1 if one of them is refused."""
    failures = {}
    for name, part in CHECKED.items():
        print(f"== {name}", flush=True)
        try:
            part()
        except (SystemExit, Exception) as failure:  # noqa: BLE001 - all parts are tried
            failures[name] = str(failure) or "failed"
            print(failures[name], flush=True)
    print(
        f"== {len(CHECKED) - len(failures)} of {len(CHECKED)} parts passed", *failures, sep="\n   refused: "
    )
    print(f"   not tried here: {NOT_HERE}")
    return 1 if failures else 0


def epoch() -> str:
    """Return the time of all files in seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return given or tools.output("git", "log", "-1", "--format=%ct").strip()


def wheel() -> None:
    """Build the wheel for the platform in DELTA_GATEWAY_WHEEL_TARGET, such as aarch64-unknown-linux-musl.

    Without the variable it is for this machine. On Linux zig links against the symbols of an older C library
    than the machine has, and for other processors.
    """
    release = tools.environment("release")
    options = ["--release", "--locked", "--out", DIST]
    target = os.environ.get(TARGET)
    if target:
        options += ["--target", target]
    if sys.platform == "linux":
        library = target.rpartition("-")[2] if target else "gnu"
        options += ["--zig", "--compatibility", COMPATIBLE[library]]
    # Paths of the machine are in no binary.
    paths = {CARGO_HOME: "cargo", ROOT: "."}
    flags = " ".join(f"--remap-path-prefix={path}={name}" for path, name in paths.items())
    variables = {
        "CARGO_TARGET_DIR": str(tools.CACHE / "release-target"),
        "RUSTFLAGS": flags,
        "PATH": f"{release}{os.pathsep}{os.environ['PATH']}",
    }
    # maturin takes it for a licence of the wheel, by its name.
    notices = ROOT / NOTICES
    notices.write_text(crate_notices(crates()))
    try:
        tools.run(release / "maturin", "build", *options, variables=variables)
    finally:
        notices.unlink()
    requirements()


def requirements() -> None:
    """Write the dependencies of a server with their hashes: `pip install --require-hashes -r`."""
    tools.run(*tools.export_command(), *tools.SERVER_PACKAGES, "--output-file", DIST / "requirements.txt")


def sdist() -> None:
    """Build the source distribution."""
    tools.run(tools.environment("release") / "maturin", "sdist", "--out", DIST)


def rootfs() -> None:
    """Assemble the root file system of the image from the wheel in dist/."""
    directory = DIST / "rootfs"
    shutil.rmtree(directory, ignore_errors=True)
    script = ROOT / "deploy/image/rootfs.py"
    inputs = ["--wheel", linux_wheel(), "--requirements", DIST / "requirements.txt"]
    tools.run(sys.executable, script, *inputs, directory)


def deb() -> None:
    """Build the Debian package of the wheel in dist/."""
    script = ROOT / "deploy/debian/package.py"
    inputs = ["--wheel", linux_wheel(), "--requirements", DIST / "requirements.txt"]
    tools.run(sys.executable, script, *inputs, DIST)


def chart() -> None:
    """Package the chart, with the alerts and the dashboard of the Python package.

    `helm package` writes the time of the build into the archive, so the archive is made here.
    """
    with tempfile.TemporaryDirectory() as scratch:
        tools.install("helm")
        helm = tools.program("helm")
        tools.run(helm, "package", ROOT / "deploy/chart", "--destination", scratch)
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


def sbom() -> None:
    """Write the bill of materials of a server: the base install and the crates of its native module."""
    components = [*packages(), *rust_components(crates())]
    document = bill_of_materials(version(), components, int(os.environ["SOURCE_DATE_EPOCH"]))
    (DIST / "delta-sharing-gateway.cdx.json").write_text(document)


def licenses() -> None:
    """List the licences, of all extras too."""
    components = [*packages("--all-extras"), *rust_components(crates())]
    (DIST / "LICENSES.md").write_text(license_list(components))
    if wrong := list(refused(components)):
        sys.exit("\n".join(f"{one.url}: {one.license} is not allowed" for one in wrong))


def packages(*options: str) -> list[Component]:
    """Return the Python packages of uv.lock, with the licences that an environment of them names."""
    export = [*tools.export_command(), "--no-dev", "--format", "cyclonedx1.5", *options]
    document = json.loads(tools.output(*export, "--preview-features", "sbom-export"))
    (installed,) = tools.environment("project").parent.glob("lib/python*/site-packages")
    return python_components(document, installed)


def crates() -> dict[str, Any]:
    """Return what cargo knows of the crates in Cargo.lock."""
    platforms = [f"--filter-platform={name}" for name in rust_platforms()]
    command = ["cargo", "metadata", "--locked", "--format-version", "1", *platforms]
    document: dict[str, Any] = json.loads(tools.output(*command))
    return document


def rust_platforms() -> list[str]:
    """Return the platforms of the wheels, as deny.toml has them."""
    targets: list[str] = tomllib.loads((ROOT / "deny.toml").read_text())["graph"]["targets"]
    return targets


def version() -> str:
    text: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return text


def crate() -> None:
    """Pack the crate `deltalog`; `cargo package` without `--no-verify` also compiles what it packed."""
    target = tools.CACHE / "package-target"
    options = ["--locked", "--no-verify", "--allow-dirty", "--target-dir", target]
    tools.run("cargo", "package", "--package", "deltalog", *options)
    (packed,) = (target / "package").glob(f"deltalog-{version()}.crate")
    shutil.copyfile(packed, DIST / packed.name)


def sums() -> None:
    """Write the hashes of all files in dist/, as `sha256sum --check` reads them."""
    files = sorted(path for path in DIST.iterdir() if path.is_file() and path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (DIST / SUMS).write_text("".join(lines))


def notes() -> None:
    """Print the changelog of this version. Fails for another tag, and for a section without a date."""
    tag = os.environ.get("GITHUB_REF_NAME", f"v{version()}")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = rf"^## {re.escape(version())} - \d{{4}}-\d\d-\d\d\n"
    found = re.search(rf"{heading}(.+?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE)
    if tag != f"v{version()}" or found is None:
        sys.exit(
            f"tag {tag}: CHANGELOG.md has no section {version()} with a date, or it is of another version"
        )
    sys.stdout.write(found[1].strip() + "\n")


def statements() -> None:
    """Fail for what a release must not say about itself."""
    if found := list(stated.wrong(os.environ)):
        sys.exit("\n".join(found))


def deployments() -> None:
    """Test the chart, the image's root file system and the Debian package, of a wheel of this machine."""
    tools.run(sys.executable, ROOT / "tests/run.py", "deploy")


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
    "sbom": sbom,
    "licenses": licenses,
    "crate": crate,
    "sums": sums,
    "notes": notes,
    "statements": statements,
}
RELEASE = "release"
# The wheel that is published needs the C libraries of `wheel`; the tests make one for this machine alone.
CHECKED: Mapping[str, Callable[[], None]] = {
    name: ARTEFACTS[name] for name in ("statements", "notes", "sdist", "chart", "sbom", "licenses", "crate")
} | {"deployments": deployments}
NOT_HERE = "wheels of other machines, `docker build`, signatures, and what publishes"

if __name__ == "__main__":
    sys.exit(main())
