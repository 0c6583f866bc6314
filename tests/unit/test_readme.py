"""The tables of README and the documentation against the code: configuration keys, routes, errors."""

import dataclasses
import re
from collections.abc import Iterator

from run import ROOT

from gateway.app import routes
from gateway.config import Admin, Config, Gateway, Limits, StorageEntry, reference
from gateway.web.error_response import STATUS_OF

CONFIGURATION = ROOT / "docs/configuration.md"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PREFIX = "{endpoint}"


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(title: str) -> Iterator[str]:
    for row in section(title).splitlines():
        if row.startswith("| `"):
            yield row.split("|")[1]


def test_the_configuration_page_is_what_the_generator_makes() -> None:
    page = CONFIGURATION.read_text(encoding="utf-8")
    assert reference.updated(page) == page, "run: python -m gateway.config.reference docs/configuration.md"


def test_every_key_has_a_meaning_and_only_keys_have_one() -> None:
    for section in reference.sections():
        for key in section.keys:
            assert key.meaning.endswith("."), key.path
    for kind in (Config, Gateway, StorageEntry, Limits, Admin):
        assert set(reference.attributes(kind)) == {field.name for field in dataclasses.fields(kind)}


def test_every_route_is_told_and_every_told_route_is_there() -> None:
    told = {found for cell in first_cells("Routes") for found in re.findall(r"`([A-Z]+ [^`]+)`", cell)}
    there = {f"{route.method} {route.path.replace(':.+', '')}" for route in routes(PREFIX)}
    assert told == there


def test_every_error_is_told() -> None:
    told = {
        (int(status), code)
        for statuses, code in re.findall(r"\| ([\d, ]+) \| `([A-Z_]+)` \|", section("Errors"))
        for status in statuses.split(",")
    }
    assert told == {(status, code) for status, code in STATUS_OF.values()}
