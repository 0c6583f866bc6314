"""README, CONTRIBUTING and the pages of docs/ as text, for the tests that compare them with the code."""

import re

from tools import ROOT

DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted(DOCS.rglob("*.md"))
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EVERYTHING = README + CONTRIBUTING + "".join(page.read_text(encoding="utf-8") for page in PAGES)


def page(name: str) -> str:
    """The text of a page of docs/."""
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """The part of a page below a heading of the second level."""
    return text.split(f"\n## {title}\n")[1].split("\n## ", maxsplit=1)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of each table row whose first cell begins with code."""
    return [
        [cell.strip() for cell in line.strip().strip("|").split(" |")]
        for line in text.splitlines()
        if line.startswith("| `")
    ]


def codes(cell: str) -> list[str]:
    """The code spans of a cell."""
    return re.findall(r"`([^`]+)`", cell)


def console_lines(text: str) -> list[str]:
    """Every command of the console blocks, once, without its prompt and comment; continued lines are one."""
    # The block of a list's item is indented.
    blocks = re.findall(r"^( *)```console\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE)
    commands = "".join(re.sub(f"^{indent}", "", block, flags=re.MULTILINE) for indent, block in blocks)
    lines = commands.replace("\\\n", "").splitlines()
    assert all(line.startswith("$ ") for line in lines)
    return list(dict.fromkeys(re.sub(r"\s+#.*", "", line.removeprefix("$ ")) for line in lines))


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def share_yaml(text: str) -> str:
    """The example configuration `share.yaml` of a page."""
    (found,) = re.findall(r"^```yaml\n(# share.yaml\n.*?)^```", text, re.DOTALL | re.MULTILINE)
    return str(found)
