"""Builds the Debian package: the wheel with its locked dependencies, the unit and the configuration.

    python3 package.py --wheel WHEEL --requirements FILE DIRECTORY

Packages of Python lie in a virtual environment, /usr/lib/delta-gateway, because Debian's own versions differ.
Its interpreter is Debian's. SOURCE_DATE_EPOCH is the time of all files. DEBEMAIL is the address of the
maintainer, as for Debian's tools. Needs Debian 12 with dpkg-deb.
"""

import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(DEPLOY))

from python_packages import PYTHON, install_packages, parsed_arguments, set_times  # noqa: E402 - found by the line above

ENVIRONMENT = "usr/lib/delta-gateway"
SITE_PACKAGES = f"{ENVIRONMENT}/lib/python{PYTHON}/site-packages"
PROGRAM = f"""#!/{ENVIRONMENT}/bin/python3 -sP
import sys

from gateway.__main__ import main

sys.exit(main())
"""
ENVIRONMENT_SETTINGS = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n"
FILES = {
    "usr/lib/systemd/system/delta-gateway.service": "systemd/delta-gateway.service",
    "usr/bin/delta-gateway-as-service": "debian/as-service.sh",
    "etc/delta-gateway/share.yaml": "share.yaml",
    "etc/default/delta-gateway": "debian/default",
    "usr/share/doc/delta-sharing-gateway/copyright": "debian/copyright",
    "usr/share/lintian/overrides/delta-sharing-gateway": "debian/lintian-overrides",
}
SCRIPTS = ("postinst", "prerm", "postrm")
DOCUMENTS = "usr/share/doc/delta-sharing-gateway"
MAINTAINER = "The developers of the Delta Sharing gateway"
CHANGES = """delta-sharing-gateway ({version}) stable; urgency=medium

  * https://github.com/delta-sharing-gateway/delta-sharing-gateway/blob/main/CHANGELOG.md

 -- {maintainer}  {date}
"""


def main() -> None:
    arguments = parsed_arguments(__doc__)
    print(build(arguments.directory, arguments.wheel, arguments.requirements))


def build(directory: Path, wheel: Path, requirements: Path) -> Path:
    """Build the package in a directory; return its path."""
    version = wheel.name.split("-")[1]
    asked = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True)
    architecture = asked.stdout.strip()
    package = directory / f"delta-sharing-gateway_{version}_{architecture}.deb"
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        install_packages(wheel, requirements, root / SITE_PACKAGES, machine=platform.machine())
        write_files(root)
        write_changes(root, version)
        compile_modules(root)
        write_control(root, version=version, architecture=architecture)
        set_times(root, int(os.environ.get("SOURCE_DATE_EPOCH", "0")))
        # One thread and gzip: the output of xz depends on the number of threads. The level of dpkg-deb, 9,
        # takes four times as long for one percent.
        form = ["--root-owner-group", "-Zgzip", "-z6"]
        subprocess.run(["dpkg-deb", *form, "--build", root, package], check=True)
    return package


def write_files(root: Path) -> None:
    """Write the program, its environment, the unit and the configuration."""
    binaries = root / ENVIRONMENT / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python3").symlink_to(f"/usr/bin/python{PYTHON}")
    (root / ENVIRONMENT / "pyvenv.cfg").write_text(ENVIRONMENT_SETTINGS)
    for name, source in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(DEPLOY / source, root / name)
    (root / "usr/bin/delta-gateway").write_text(PROGRAM)
    for path in (root / "usr/bin").iterdir():
        path.chmod(0o755)
    # Has credentials in variables; systemd reads it as root.
    (root / "etc/default/delta-gateway").chmod(0o600)


def maintainer() -> str:
    """Return who maintains the package, with the address in the environment."""
    address = os.environ.get("DEBEMAIL")
    return f"{MAINTAINER} <{address}>" if address else MAINTAINER


def write_changes(root: Path, version: str) -> None:
    """Write Debian's changelog: the version, and where its changes are."""
    date = format_datetime(datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC))
    text = CHANGES.format(version=version, maintainer=maintainer(), date=date)
    (root / DOCUMENTS / "changelog.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def compile_modules(root: Path) -> None:
    """Compile all modules: the service cannot write beside them."""
    options = ["-q", "--invalidation-mode", "unchecked-hash", "-s", root, "-p", "/"]
    python = [f"/usr/bin/python{PYTHON}", "-m", "compileall", *options, root / SITE_PACKAGES]
    subprocess.run(python, check=True, env={**os.environ, "PYTHONHASHSEED": "0"})


def write_control(root: Path, *, version: str, architecture: str) -> None:
    """Write the description of the package, its scripts and the hashes of its files."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    values = {
        "VERSION": version,
        "ARCHITECTURE": architecture,
        "MAINTAINER": maintainer(),
        "INSTALLED_SIZE": str(sum(path.stat().st_size for path in files) // 1024),
    }
    control = (DEPLOY / "debian/control").read_text()
    for name, value in values.items():
        control = control.replace(f"@{name}@", value)
    directory = root / "DEBIAN"
    directory.mkdir()
    (directory / "control").write_text(control)
    shutil.copyfile(DEPLOY / "debian/conffiles", directory / "conffiles")
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}" for path in files]
    (directory / "md5sums").write_text("\n".join(sums) + "\n")
    for name in SCRIPTS:
        shutil.copyfile(DEPLOY / "debian" / name, directory / name)
        (directory / name).chmod(0o755)


if __name__ == "__main__":
    main()
