"""Assembles the root file system of the container image: Debian's Python, the gateway and nothing else.

    python3 rootfs.py --wheel WHEEL --requirements FILE DIRECTORY

The image and the tests run the same directory. It has no shell, no package manager and no file that its
user may write. Packages of Debian are listed in /var/lib/dpkg/status.d, where scanners look for them.
SOURCE_DATE_EPOCH is the time of all files.

Needs Debian 12 with apt-get, dpkg-deb and strip, and CAP_SYS_CHROOT: modules are compiled by the interpreter
that runs them. Only the standard library and pip are used here.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(DEPLOY))

from python_packages import PYTHON, install_packages, parsed_arguments, set_times  # noqa: E402 - found by the line above

USER_ID = 65532
DEBIAN = "12"
PACKAGES = (
    "base-files",
    "ca-certificates",
    "libbz2-1.0",
    "libc6",
    "libcrypt1",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    f"libpython{PYTHON}-minimal",
    f"libpython{PYTHON}-stdlib",
    "libsqlite3-0",
    "libssl3",
    "libstdc++6",
    "libuuid1",
    f"python{PYTHON}-minimal",
    "tzdata",
    "zlib1g",
)
# Of these packages: programs, charsets that no code converts, and modules that no server imports.
UNUSED = (
    "etc/cron.daily",
    "etc/default",
    "etc/init.d",
    "etc/ld.so.conf.d/*",
    "etc/profile.d",
    "etc/skel",
    "etc/update-motd.d",
    "sbin",
    "usr/games",
    "usr/lib/*/gconv",
    "usr/lib/*/audit",
    "usr/lib/*/perl*",
    f"usr/lib/python{PYTHON}/distutils",
    f"usr/lib/python{PYTHON}/ensurepip",
    f"usr/lib/python{PYTHON}/lib2to3",
    f"usr/lib/python{PYTHON}/pydoc_data",
    f"usr/lib/python{PYTHON}/test",
    f"usr/lib/python{PYTHON}/turtle.py",
    f"usr/lib/python{PYTHON}/unittest",
    # Their libraries are left out.
    *(
        f"usr/lib/python{PYTHON}/lib-dynload/{name}.*"
        for name in ("_curses", "_curses_panel", "_dbm", "nis", "readline")
    ),
    "usr/sbin",
    "usr/share/bug",
    "usr/share/binfmts",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/menu",
    "usr/share/applications",
    "usr/share/pixmaps",
    "usr/share/zoneinfo/right",
    "usr/src",
    "usr/local/*",
)
PROGRAMS = {f"python{PYTHON}"}
SITE_PACKAGES = f"usr/local/lib/python{PYTHON}/dist-packages"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
TEXTS = {
    "etc/passwd": "root:x:0:0:root:/:/nonexistent\n"
    f"gateway:x:{USER_ID}:{USER_ID}:gateway:/nonexistent:/nonexistent\n",
    "etc/group": f"root:x:0:\ngateway:x:{USER_ID}:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
    "etc/delta-gateway/share.yaml": (DEPLOY / "share.yaml").read_text(),
}
EXECUTABLES = {
    # -P: only installed packages are importable. -s: none of a home directory.
    "usr/local/bin/delta-gateway": f"""#!/usr/bin/python{PYTHON} -sP
import sys

from gateway.__main__ import main

sys.exit(main())
""",
    "usr/local/bin/healthcheck": DEPLOY / "image/healthcheck.py",
}
DIRECTORIES = ("proc", "dev", "sys", "run/secrets")
# Volumes of the image.
OWN_DIRECTORIES = {"var/lib/delta-gateway": 0o700, "var/cache/delta-gateway": 0o700}


def main() -> None:
    """Make the directory."""
    arguments = parsed_arguments(__doc__)
    assemble(arguments.directory.absolute(), arguments.wheel, arguments.requirements)


def assemble(root: Path, wheel: Path, requirements: Path) -> None:
    """Make a root file system in a directory that does not exist yet, or is empty."""
    check_release()
    root.mkdir(parents=True, exist_ok=True)
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as scratch:
        extract_packages(root, Path(scratch))
    remove_unused(root)
    install_packages(wheel, requirements, root / SITE_PACKAGES, machine=platform.machine())
    strip_modules(root)
    share_openssl(root)
    write_files(root)
    compile_modules(root)
    set_times(root, int(os.environ.get("SOURCE_DATE_EPOCH", "0")))


def strip_modules(root: Path) -> None:
    """Remove symbols of native modules that no loader needs, which some wheels contain."""
    modules = sorted((root / SITE_PACKAGES).rglob("*.so"))
    subprocess.run(["strip", "--strip-unneeded", "--enable-deterministic-archives", *modules], check=True)


def share_openssl(root: Path) -> None:
    """Let the client of PostgreSQL use Debian's OpenSSL in place of a copy in its wheel.

    The client needs symbols of OpenSSL 3.0 only. Debian's copy gets the security updates of the image.
    """
    libraries = root / SITE_PACKAGES / "psycopg_binary.libs"
    for name in ("libcrypto", "libssl"):
        (copy,) = libraries.glob(f"{name}-*.so.3")
        (shared,) = (root / "usr/lib").glob(f"*/{name}.so.3")
        copy.unlink()
        copy.symlink_to(f"/{shared.relative_to(root)}")


def check_release() -> None:
    """Exit on a machine whose packages have other names."""
    release = platform.freedesktop_os_release()
    if (release["ID"], release.get("VERSION_ID")) != ("debian", DEBIAN):
        sys.exit(f"rootfs.py needs Debian {DEBIAN}, this is {release['PRETTY_NAME']}")


def extract_packages(root: Path, scratch: Path) -> None:
    """Download the packages by apt, which checks their signatures, and unpack them."""
    # Without a sandbox user: it could not write into the directory.
    download = ["apt-get", "-qq", "-o", "APT::Sandbox::User=", "download", *PACKAGES]
    if subprocess.run(download, check=False, cwd=scratch).returncode:
        # No list of packages, or one from before the last security update.
        subprocess.run(["apt-get", "-qq", "update"], check=True)
        subprocess.run(download, check=True, cwd=scratch)
    # Directories of Debian's merged /usr, which packages expect.
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    status = root / "var/lib/dpkg/status.d"
    controls = {}
    for package in sorted(scratch.glob("*.deb")):
        archive = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True
        ).stdout
        # Keeps the links of the merged /usr, which `dpkg-deb --extract` would replace by directories.
        unpack = ["tar", "--extract", "--keep-directory-symlink", "--no-same-owner", "--directory", str(root)]
        subprocess.run(unpack, check=True, input=archive)
        control = subprocess.run(["dpkg-deb", "--field", package], check=True, capture_output=True).stdout
        controls[package.name.partition("_")[0]] = control
    shutil.rmtree(root / "var")
    status.mkdir(parents=True)
    for name, control in controls.items():
        (status / name).write_bytes(control)


def remove_unused(root: Path) -> None:
    """Remove what the server does not need of the packages. Their copyright files stay."""
    for pattern in UNUSED:
        for path in root.glob(pattern):
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            else:
                shutil.rmtree(path)
    for path in (root / "usr/bin").iterdir():
        if path.name not in PROGRAMS:
            path.unlink()
    for path in (root / "usr/share/doc").rglob("*"):
        if path.is_file() and path.name != "copyright":
            path.unlink()


def write_files(root: Path) -> None:
    """Write the users, the certificates, the programs and the directories of the image."""
    certificates = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    texts = {**TEXTS, CERTIFICATES: "".join(path.read_text() for path in certificates)}
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name, source in EXECUTABLES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source.read_text() if isinstance(source, Path) else source)
        path.chmod(0o755)
    for name in DIRECTORIES:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for name, mode in OWN_DIRECTORIES.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(mode)
        if os.geteuid() == 0:
            os.chown(root / name, USER_ID, USER_ID)


def compile_modules(root: Path) -> None:
    """Compile all modules: the read-only image cannot, and each start would compile them again."""
    unshare = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
    # By hash, unchecked: times of files differ between builds.
    options = ["-q", "--invalidation-mode", "unchecked-hash"]
    directories = [f"/usr/lib/python{PYTHON}", f"/{SITE_PACKAGES}"]
    python = ["chroot", root, f"/usr/bin/python{PYTHON}", "-m", "compileall", *options, *directories]
    # Sets of constants are written in the order of their hashes.
    subprocess.run([*unshare, *python], check=True, env={**os.environ, "PYTHONHASHSEED": "0"})


if __name__ == "__main__":
    main()
