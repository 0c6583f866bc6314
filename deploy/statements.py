"""What a release says about itself: contacts, one repository, and a description for the package index.

    python3 deploy/statements.py     writes deploy/pypi.md: the README with absolute links

In: the files of the checkout. Out: sentences about what is wrong. A release is refused while there are any.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DESCRIPTION = "deploy/pypi.md"
"""The README in the metadata of the package: an index has no files beside it."""
CONTACTS = ("SECURITY.md", "pyproject.toml", "Cargo.toml", "deploy/chart/Chart.yaml", "deploy/debian/control")
NAMES_OF_REPOSITORY = (
    *CONTACTS,
    "deploy/chart/values.yaml",
    "deploy/debian/copyright",
    "deploy/debian/package.py",
    "deploy/image/Dockerfile",
    "deploy/systemd/delta-gateway.service",
    "docs/install.md",
    "docs/upgrading.md",
)
PLACEHOLDER = re.compile(
    r"\b(?:TODO|FIXME|TBD|XXX|CHANGEME)\b|not set:|(?i:replace this|placeholder|your[- ]name)"
)
# Names that RFC 2606 reserves, and addresses that nobody reads.
UNREAD = re.compile(
    r"(?i)[\w.+-]*no-?reply[\w.+-]*@|[@./][\w-]+\.(?:example|invalid|test)\b|\bexample\.(?:com|net|org)\b"
)
ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
HOSTS = re.compile(r"(?:github\.com|ghcr\.io|raw\.githubusercontent\.com)/([\w.-]+/[\w.-]+)")
LINK = re.compile(r"(!?)(\[[^\[\]]*\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")
FOREIGN = ("delta-io/",)


def repository() -> str:
    """Return the owner and name of the repository that the package names."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    name: str = urls["Source"].removeprefix("https://github.com/")
    return name


def description() -> str:
    """Return the README with the addresses of its links and images."""

    def absolute(link: re.Match[str]) -> str:
        is_image, text, target, rest = link.groups()
        base = f"https://raw.githubusercontent.com/{repository()}" if is_image else page
        return f"{is_image}{text}{base}/main/{target}{rest}"

    page = f"https://github.com/{repository()}/blob"
    return LINK.sub(absolute, (ROOT / "README.md").read_text(encoding="utf-8"))


def wrong(environ: Mapping[str, str]) -> Iterator[str]:
    """Return what a release must not say. `environ`: where it is built, and the address of its maintainer."""
    for name in CONTACTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        for pattern in (PLACEHOLDER, UNREAD):
            for found in pattern.finditer(text):
                yield f"{name}: {found[0]!r} is a placeholder"
    maintainer = environ.get("DEBEMAIL", "")
    if not ADDRESS.fullmatch(maintainer) or UNREAD.search(maintainer):
        yield "DEBEMAIL has no address of the maintainer of the Debian package"
    if f"https://github.com/{repository()}/security/advisories/new" not in (ROOT / "SECURITY.md").read_text():
        yield f"SECURITY.md does not name the form for private reports of {repository()}"
    if (built_in := _built_in(environ)) is None:
        yield "unknown who publishes: GITHUB_REPOSITORY is not set, and no remote is at GitHub"
    for name in NAMES_OF_REPOSITORY:
        for found in HOSTS.finditer((ROOT / name).read_text(encoding="utf-8")):
            named = found[1].removesuffix(".git").rstrip(".")
            if built_in not in (None, named) and not named.startswith(FOREIGN):
                yield f"{name}: names {named}, and the release is published by {built_in}"
    yield from wrong_description()


def _built_in(environ: Mapping[str, str]) -> str | None:
    """Return the owner and name of the repository that publishes."""
    if given := environ.get("GITHUB_REPOSITORY"):
        return given
    remote = subprocess.run(
        ["git", "remote", "get-url", "origin"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    found = re.search(r"github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?\s*$", remote.stdout)
    return found[1] if found else None


def wrong_description() -> Iterator[str]:
    """Return what the index would show wrongly. Needs the tools of a release."""
    if (ROOT / DESCRIPTION).read_text(encoding="utf-8") != description():
        yield f"{DESCRIPTION} is not that of README.md; write it by: python3 deploy/statements.py"
    sys.path.insert(0, str(ROOT / "tests"))
    import tools  # noqa: PLC0415 - what makes environments is needed here alone

    render = [tools.environment("release") / "python", "-m", "readme_renderer", ROOT / DESCRIPTION]
    rendered = subprocess.run(render, check=False, capture_output=True, text=True)
    if rendered.returncode:
        yield f"{DESCRIPTION} cannot be rendered: {rendered.stderr.strip()[-300:]}"
    targets = re.findall(r'(?:href|src)="([^"]*)"', rendered.stdout)
    for target in targets:
        if not target.startswith(("https://", "#")):
            yield f"{DESCRIPTION}: {target} is relative"
    if len(targets) < len(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))):
        yield f"{DESCRIPTION}: links are missing where it is rendered"


if __name__ == "__main__":
    (ROOT / DESCRIPTION).write_text(description(), encoding="utf-8")
