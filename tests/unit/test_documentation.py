"""README and the pages of docs/ against the code: keys, routes, errors, metrics, alerts, layers, the demo."""

import argparse
import base64
import dataclasses
import json
import re
import runpy
import tomllib
import typing
from pathlib import Path
from typing import cast, get_args

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from prometheus_client import Counter
from run import PARTS
from support import configuration_reference as reference
from support.documentation import (
    DOCS,
    PAGES,
    README,
    blocks,
    codes,
    console_lines,
    page,
    rows,
    section,
    share_yaml,
)
from tools import ROOT
from unit.test_layers import LAYERS
from unit.test_rust_layers import CORE_LAYERS as RUST_LAYERS

from gateway.admin.app import OPERATIONS
from gateway.app import routes
from gateway.cli.command_line import parser
from gateway.config import Admin, Config, Gateway, Limits, Location, StorageEntry, load
from gateway.config.storages import StorageForm
from gateway.protocol import cors, headers
from gateway.protocol.client_features import FIRST_PYTHON
from gateway.telemetry.metrics import Metrics, SupervisorMetrics
from gateway.telemetry.request_record import REFUSALS, Refusal, RequestRecord
from gateway.web.error_response import STATUS_OF

README_BYTES = 7 * 1024
FIRST_SCREEN_LINES = 20
LOG_FIELDS = ["time_ms", "request", "method", "path", "status", "recipient", "remote", "proxy"]
LOG_FIELDS += ["duration_ms", "bytes"]
PREFIX = "{endpoint}"
TABLES = f"{PREFIX}/shares/{{share}}/schemas/{{schema}}/tables"


def test_the_readme_is_short_and_begins_with_the_two_commands() -> None:
    assert len(README.encode()) <= README_BYTES
    first_screen = "\n".join(README.splitlines()[:FIRST_SCREEN_LINES])
    commands = ["pip install '.[demo]' && delta-gateway demo", "python3 tests/run.py"]
    assert console_lines(first_screen) == commands


def test_the_readme_shows_the_demos_session() -> None:
    """`test_it_reads_its_own_shares` compares the image with the demo's output."""
    assert re.search(r"^!\[.*\]\(docs/images/demo\.svg\)$", README, re.MULTILINE)


def test_the_package_index_gets_the_readme_with_absolute_links() -> None:
    """deploy/pypi.md is in the metadata of the wheel."""
    described = runpy.run_path(str(ROOT / "deploy/statements.py"))["description"]()
    assert (ROOT / "deploy/pypi.md").read_text(encoding="utf-8") == described, "run: deploy/statements.py"


def test_the_first_page_lists_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = [name for row in rows(section(page("getting-started"), "Install")) for name in codes(row[0])]
    assert sorted(listed) == sorted(extras)


def test_the_first_share_is_the_same_on_both_pages() -> None:
    beginning = page("getting-started")
    assert share_yaml(beginning) == share_yaml(README)
    assert console_lines(section(beginning, "First share on S3")) == console_lines(
        section(README, "First share on S3")
    )


@pytest.mark.parametrize("path", [ROOT / "README.md", *PAGES], ids=lambda path: path.stem)
def test_every_file_that_a_page_links_to_is_there(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_the_configuration_reference_equals_the_generated_one() -> None:
    text = page("configuration-reference")
    command = "python3 tests/support/configuration_reference.py docs/configuration-reference.md"
    assert reference.updated(text) == text, f"run: {command}"


def test_every_key_has_a_meaning_and_only_keys_have_one() -> None:
    for section_of_keys in reference.sections():
        for key in section_of_keys.keys:
            assert key.meaning.endswith("."), key.path
    for kind in (Config, Gateway, Limits, Admin):
        assert set(reference.attributes(kind)) == {field.name for field in dataclasses.fields(kind)}
    for form in typing.get_args(StorageForm):
        keys = dataclasses.fields(form)
        above = dataclasses.fields(form.__base__) if form is not StorageEntry else ()
        assert set(reference.attributes(form)) == {key.name for key in keys[len(above) :]}


def test_the_protocol_page_lists_every_route() -> None:
    table = section(page("protocol"), "Routes").replace("{tables}", TABLES)
    table = table.replace("{volumes}", TABLES.replace("/tables", "/volumes"))
    listed = {route for row in rows(table) for route in codes(row[0])}
    assert listed == {f"{route.method} {route.path.replace(':.+', '')}" for route in routes(PREFIX)}


def test_the_errors_page_lists_the_first_client_of_each_feature() -> None:
    listed = {
        codes(row[0])[0].lower(): row[1].removeprefix("from ")
        for row in rows(section(page("errors"), "Which client reads a table"))
    }
    assert listed == FIRST_PYTHON


def test_the_protocol_page_lists_every_error() -> None:
    errors = section(page("protocol"), "Errors")
    listed = {
        (int(status), code)
        for statuses, code in re.findall(r"^\| ([\d, ]+) \| `([A-Z_]+)` \|", errors, re.MULTILINE)
        for status in statuses.split(",")
    }
    assert listed == {(status, code) for status, code, _ in STATUS_OF.values()}


def test_the_protocol_page_lists_every_header_that_browsers_may_send_or_read() -> None:
    named = {value for name, value in vars(headers).items() if name.endswith("_HEADER")}
    listed = {codes(row[0])[0] for row in rows(section(page("protocol"), "Headers"))}
    assert named <= listed
    assert named <= {*cors.REQUEST_HEADERS, *cors.RESPONSE_HEADERS}


def test_the_observability_page_lists_every_refusal_with_its_meaning() -> None:
    listed = {codes(row[0])[0]: row[1] for row in rows(section(page("observability"), "Refusals"))}
    assert listed == REFUSALS
    assert REFUSALS.keys() == {reason for kind in get_args(Refusal) for reason in get_args(kind)}


def test_the_recipients_reference_lists_every_route_of_the_admin_api() -> None:
    listed = {
        route for row in rows(section(page("recipients-reference"), "HTTP API")) for route in codes(row[0])
    }
    assert listed == {f"{operation.method} {operation.path}" for operation in OPERATIONS}


def test_the_observability_page_lists_every_metric_with_its_type_and_labels() -> None:
    listed = {
        (codes(row[0])[0], row[1], tuple(codes(row[2])))
        for row in rows(section(page("observability"), "Metrics"))
    }
    metrics = [
        metric
        for registry in (Metrics().registry, SupervisorMetrics().registry)
        for metric in registry._collector_to_names
    ]
    assert listed == {
        (
            f"{metric._name}{'_total' if isinstance(metric, Counter) else ''}",
            metric._type,
            metric._labelnames,
        )
        for metric in metrics
    }


def test_the_observability_page_lists_every_field_of_a_requests_log_line() -> None:
    table = section(page("observability"), "Logs")
    listed = [field for row in rows(table) for field in codes(row[0])]
    assert sorted(listed) == sorted([*LOG_FIELDS, *RequestRecord.__struct_fields__])


def test_the_observability_page_lists_every_alert() -> None:
    listed = {
        (codes(row[0])[0], row[1]) for row in rows(section(page("observability"), "Dashboard and alerts"))
    }
    groups = yaml.safe_load((ROOT / "gateway/telemetry/dashboards/alerts.yaml").read_text())["groups"]
    assert listed == {
        (rule["alert"], rule["labels"]["severity"]) for group in groups for rule in group["rules"]
    }


def test_the_architecture_page_lists_the_layers_in_their_order() -> None:
    layers = section(page("architecture"), "Layers").split("\nRust has")[0]
    listed = [
        name.removeprefix("gateway/").removesuffix("/").removesuffix(".py")
        for row in rows(layers)
        for name in codes(row[0])
    ]
    assert listed == [layer.name for layer in LAYERS if layer.name != "__init__"]


def test_every_file_that_the_architecture_page_names_is_there() -> None:
    named = re.findall(r"`((?:gateway|rust|tests|bench|loadtests)/[^`]*)`", page("architecture"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_architecture_page_lists_every_module_of_the_core() -> None:
    crate = section(page("architecture"), "Layers").split("\nRust has")[1]
    listed = [name for row in rows(crate) for name in codes(row[0])]
    modules = {module for layer in RUST_LAYERS for module in layer if "::" not in module}
    assert sorted(listed) == sorted(modules - {"known_tables"})


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_page_has_one_title(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1


def test_the_operations_page_lists_every_command() -> None:
    listed = [command for row in rows(section(page("operations"), "Commands")) for command in codes(row[0])]
    assert sorted(listed) == sorted(f"delta-gateway {command}" for command in choices(parser(), "command"))


def test_the_recipients_reference_lists_every_operation_of_the_command() -> None:
    listed = [
        name for row in rows(section(page("recipients-reference"), "Commands")) for name in codes(row[0])
    ]
    assert sorted(listed) == sorted(
        choices(choices(parser("recipient"), "command")["recipient"], "operation")
    )


STORES = sorted((DOCS / "stores").glob("*.md"))
RSA_KEY = (
    rsa.generate_private_key(public_exponent=65537, key_size=1024)
    .private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    .decode()
)
# Of the files that samples name, by the end of the key that names them.
FILES = {
    "accountKeyFile": base64.b64encode(b"key").decode(),
    "credentialsFile": json.dumps(
        {"type": "service_account", "client_email": "a@b", "private_key": RSA_KEY, "token_uri": "https://t"}
    ),
    "File": "a secret",
}


@pytest.mark.parametrize("path", STORES, ids=lambda path: path.stem)
def test_the_samples_of_a_store_load(path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    samples = blocks(path.read_text(encoding="utf-8"), "yaml")
    assert samples
    for number, sample in enumerate(samples):
        for key, name in re.findall(r"(\w+File): ([\w.-]+)", sample):
            content = next(content for end, content in FILES.items() if key.endswith(end))
            (tmp_path / name).write_text(content)
        file = tmp_path / f"{number}.yaml"
        reader = "authorization: {bearerToken: a-token-of-the-tests}"
        file.write_text(f"version: 1\nport: 0\nshares: []\n{reader}\n{sample}")
        config = load(file)
        assert len(config.gateway.storages) == sample.count("prefix:")
        assert "unknown key" not in caplog.text


@pytest.mark.parametrize("path", STORES, ids=lambda path: path.stem)
def test_the_policies_of_a_store_are_json(path: Path) -> None:
    for policy in blocks(path.read_text(encoding="utf-8"), "json"):
        statements = json.loads(policy)
        for statement in statements.get("Statement", [statements]):
            assert {"Effect", "Action"} <= statement.keys()


@pytest.mark.parametrize("path", STORES, ids=lambda path: path.stem)
def test_the_pages_of_stores_name_keys_that_there_are(path: Path) -> None:
    known = {key.path.rpartition(".")[2] for found in reference.sections() for key in found.keys}
    tables = rows(section(path.read_text(encoding="utf-8"), "Entry"))
    assert [key for row in tables for key in codes(row[0]) if key not in known] == []


@pytest.mark.parametrize("path", STORES, ids=lambda path: path.stem)
def test_the_forms_on_the_page_of_a_store_are_locations(path: Path) -> None:
    forms = [
        code for row in rows(section(path.read_text(encoding="utf-8"), "Locations")) for code in codes(row[0])
    ]
    kind = {"s3": "s3", "azure": "azure", "google": "gs"}[path.stem]
    assert all(Location.parse(form).kind == kind for form in forms)


def choices(commands: argparse.ArgumentParser, name: str) -> dict[str, argparse.ArgumentParser]:
    """The subcommands of a parser."""
    (found,) = (action.choices for action in commands._actions if action.dest == name)
    return cast("dict[str, argparse.ArgumentParser]", found)


def test_every_file_that_the_contributing_page_names_is_there() -> None:
    named = [name for name in codes(section(page("contributing"), "Where to change what")) if "/" in name]
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_contributing_page_lists_every_part_of_the_test_command() -> None:
    listed = [part for row in rows(section(page("contributing"), "Tests")) for part in codes(row[0])]
    assert sorted(listed) == sorted([*PARTS, "quick"])
