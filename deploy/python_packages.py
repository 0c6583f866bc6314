"""Unpacks the gateway's wheel and its locked dependencies into a directory of importable packages.

In: a wheel and requirements with hashes. Out: the files of all wheels, without scripts and without traces of
the machine that unpacked them. pip downloads, so its configuration (an index, a proxy, certificates) counts.
"""

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

PYTHON = "3.11"
# Of botocore's descriptions of services, which are most of its size: those that give credentials.
AWS_SERVICES = {"signin", "sso", "sso-oidc", "sts"}
# Of other packages what no server imports: asynchronous clients of Azure, SQLAlchemy beside its core and the
# dialects of the two databases, what google-auth needs for RSA keys without `cryptography`, and what writes
# modules such as the compiled one of `cryptography`.
UNUSED = (
    "azure/identity/aio",
    "azure/storage/blob/_generated/aio",
    "azure/storage/blob/aio",
    "cffi",
    "pycparser",
    "pyasn1_modules",
    "sqlalchemy/dialects/mssql",
    "sqlalchemy/dialects/mysql",
    "sqlalchemy/dialects/oracle",
    "sqlalchemy/ext/asyncio",
    "sqlalchemy/ext/declarative",
    "sqlalchemy/ext/mypy",
    "sqlalchemy/orm",
)
# Directories of the packages' own tests.
TESTS = {"testing", "tests"}
SOURCES = {".c", ".cpp", ".h", ".hpp", ".pxd", ".pyi", ".pyx"}
# Of glibc in Debian 12 and newer.
MANYLINUX = (
    "manylinux_2_34",
    "manylinux_2_28",
    "manylinux_2_17",
    "manylinux2014",
    "manylinux_2_5",
    "manylinux1",
)


def parsed_arguments(document: str | None) -> argparse.Namespace:
    """Return the arguments of a program with a document: a wheel, its requirements and a directory."""
    parser = argparse.ArgumentParser(
        description=document, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--requirements", type=Path, required=True)
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    return parser.parse_args()


def install_packages(wheel: Path, requirements: Path, target: Path, *, machine: str) -> None:
    """Unpack a wheel and the wheels of the requirements for CPython 3.11 on Linux into `target`."""
    downloads = target.with_name(f"{target.name}.downloads")
    shutil.rmtree(downloads, ignore_errors=True)
    _download(requirements, downloads, machine)
    for path in (*sorted(downloads.glob("*.whl")), wheel):
        _unpack(path, target)
    shutil.rmtree(downloads)


def set_times(root: Path, seconds: int) -> None:
    """Give all files one time."""
    for directory, _, names in os.walk(root, topdown=False):
        for path in (*(os.path.join(directory, name) for name in names), directory):
            os.utime(path, (seconds, seconds), follow_symlinks=False)


def _download(requirements: Path, directory: Path, machine: str) -> None:
    platforms = [f"--platform={name}_{machine}" for name in MANYLINUX]
    abis = ["--abi=cp311", "--abi=abi3", "--abi=none"]
    interpreter = ["--implementation=cp", f"--python-version={PYTHON}", *abis, *platforms]
    options = ["-q", "--no-deps", "--only-binary=:all:", "--require-hashes", *interpreter]
    command = [sys.executable, "-m", "pip", "download", *options, "-r", requirements, "-d", directory]
    subprocess.run(command, check=True)


def _unpack(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            name = _installed_name(PurePosixPath(entry.filename))
            if name is None or entry.is_dir():
                continue
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, path.open("wb") as copy:
                shutil.copyfileobj(source, copy)


def _installed_name(name: PurePosixPath) -> PurePosixPath | None:
    """Return where a file of a wheel belongs; None for scripts, sources of C, and what is not used."""
    if name.parts[:2] == ("botocore", "data") and len(name.parts) > 3:
        return name if name.parts[2] in AWS_SERVICES else None
    if any(name.is_relative_to(unused) for unused in UNUSED) or TESTS & {*name.parts}:
        return None
    if name.suffix in SOURCES and name.parts[0] != "gateway":
        return None
    if not name.parts[0].endswith(".data"):
        return name
    return PurePosixPath(*name.parts[2:]) if name.parts[1] in {"purelib", "platlib"} else None
