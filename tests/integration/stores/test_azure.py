"""Tables on Azure through the whole server: both kinds of signatures, every identity, and their failures."""

import ssl
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from support.azure_identity import CLIENT, TENANT, THROTTLED, Identities, entra_error, running
from support.azurite_server import Azurite
from support.gateway_process import RunningGateway, files_of, running_gateway, share
from support.http_service import Response
from support.nightly import at_night, some_at_night
from support.odd_tables import ODD_KEYS, in_log, write_log
from support.official_client import OfficialClient
from support.raw_http import get
from support.waiting import WAIT_SECONDS
from tables.demo import ROWS

CONTAINER, SOURCE, OTHER = "lake", "source", "private"
ROOT = "ware house/50%+=ü"
KEPT = "kept here/p=a%20b/a b+%.parquet"
DAY_MS = 86_400_000


def absolute_paths(account: str, container: str) -> dict[str, str]:
    """The path of one file in each form that a log may have."""
    key = quote(KEPT)
    return {
        "abfss": f"abfss://{container}@{account}.dfs.core.windows.net/{key}",
        "abfs": f"abfs://{container}@{account}.dfs.core.windows.net/{key}",
        "wasbs": f"wasbs://{container}@{account}.blob.core.windows.net/{key}",
        "wasb": f"wasb://{container}@{account}.blob.core.windows.net/{key}",
        "https-blob": f"https://{account}.blob.core.windows.net/{container}/{key}",
        "https-dfs": f"https://{account}.dfs.core.windows.net/{container}/{key}",
        "az": f"az://{container}/{key}",
        "abfss-without-account": f"abfss://{container}/{key}",
    }


def fill(azurite: Azurite, demo_tables: Path, directory: Path) -> None:
    """Puts the demo's tables, one of odd keys, and shallow clones of another container."""
    for name in ROWS:
        azurite.upload(demo_tables / name, CONTAINER, f"{ROOT}/{name}")
    tables = directory / "tables"
    write_log(tables / "odd", {in_log(key): key.encode() for key in ODD_KEYS})
    for form, path in absolute_paths(azurite.account, SOURCE).items():
        write_log(tables / form, {path: KEPT.encode()})
    write_log(tables / "forbidden", {absolute_paths(azurite.account, OTHER)["wasbs"]: b""})
    azurite.upload(tables, CONTAINER, ROOT)
    for key in ODD_KEYS:
        azurite.put(CONTAINER, f"{ROOT}/odd/{key}", key.encode())
    for container in (SOURCE, OTHER):
        azurite.put(container, KEPT, KEPT.encode())


def location(azurite: Azurite, table: str = "", container: str = CONTAINER) -> str:
    root = f"{ROOT}/{table}" if table else ""
    return f"abfss://{container}@{azurite.account}.dfs.core.windows.net/{root}"


def storages(azurite: Azurite, **identity: Any) -> list[dict[str, Any]]:
    return [
        {"prefix": location(azurite, container=container), "endpoint": azurite.endpoint, **identity}
        for container in (CONTAINER, SOURCE, OTHER)
    ]


@contextmanager
def serving(
    azurite: Azurite, directory: Path, tables: list[str], identity: dict[str, Any], **keys: Any
) -> Iterator[RunningGateway]:
    section = {
        "storages": storages(azurite, **identity),
        "allowedRoots": [location(azurite, container=SOURCE)],
        "drainDelaySeconds": 0,
    }
    directory.mkdir(exist_ok=True)
    shared = [share("demo", {table: location(azurite, table) for table in tables})]
    with running_gateway(directory, shared, section, **keys) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def gateway(
    azurite: Azurite, demo_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """Serves the tables by the account's key, over HTTP."""
    directory = tmp_path_factory.mktemp("azure")
    fill(azurite, demo_tables, directory)
    tables = [*ROWS, "odd", *absolute_paths(azurite.account, SOURCE), "forbidden"]
    with serving(azurite, directory, tables, {"accountKey": azurite.account_key}) as served:
        yield served


def test_every_odd_key_opens_its_own_file(gateway: RunningGateway) -> None:
    opened = [get(file["url"]) for file in files_of(gateway, "odd")]
    assert sorted(opened) == sorted((200, key.encode()) for key in ODD_KEYS)


@pytest.mark.parametrize("form", absolute_paths("a", "c"))
def test_a_clone_reads_another_container_by_every_form_of_a_path(gateway: RunningGateway, form: str) -> None:
    (file,) = files_of(gateway, form)
    assert get(file["url"]) == (200, KEPT.encode())


def test_a_clone_of_a_container_that_is_not_allowed_is_refused(gateway: RunningGateway) -> None:
    answer = gateway.query("demo.default.forbidden")
    assert (answer.status, answer.json["errorCode"]) == (403, "PERMISSION_DENIED")
    assert OTHER not in answer.json["message"]


@pytest.mark.parametrize("delta", [True, False])
def test_the_official_client_reads_a_table_on_azure(
    official_client: OfficialClient, gateway: RunningGateway, delta: bool
) -> None:
    found = official_client.rows(gateway.profile, "demo.default.cities", ["city"], use_delta_format=delta)
    assert sorted(city for (city,) in found) == sorted(row[0] for row in ROWS["cities"])


def test_a_signature_opens_no_other_blob(gateway: RunningGateway) -> None:
    (one, other, *_) = (file["url"] for file in files_of(gateway, "odd"))
    assert get(f"{other.partition('?')[0]}?{one.partition('?')[2]}")[0] == 403


def test_a_wrong_account_key_is_the_providers_fault(
    azurite: Azurite, gateway: RunningGateway, tmp_path: Path
) -> None:
    wrong = "d3Jvbmc="
    with serving(azurite, tmp_path, ["odd"], {"accountKey": wrong}) as served:
        answer = served.query("demo.default.odd")
        assert (answer.status, answer.json["errorCode"]) == (403, "PERMISSION_DENIED")
        for word in (azurite.account, CONTAINER, "127.0.0.1", wrong):
            assert word not in answer.json["message"]
        assert wrong not in served.logged('"status":403')


@pytest.fixture(scope="module")
def lake(azurite_over_tls: Azurite, demo_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Azurite:
    """The tables in the server with TLS, where tokens are accepted."""
    fill(azurite_over_tls, demo_tables, tmp_path_factory.mktemp("azure-over-tls"))
    return azurite_over_tls


@pytest.fixture
def identities(lake: Azurite, monkeypatch: pytest.MonkeyPatch) -> Iterator[Identities]:
    """Services of tokens with the certificate of the store, which every client trusts."""
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(variable, str(lake.certificate))
    with running(Identities(), lake.certificate) as services:
        yield services


def secret(identities: Identities) -> dict[str, Any]:
    """The keys of an entry with a client's secret."""
    return {
        "authorityHost": identities.url,
        "tenantId": TENANT,
        "clientId": CLIENT,
        "clientSecret": identities.client_secret,
    }


def get_over_tls(azurite: Azurite, url: str) -> bytes:
    context = ssl.create_default_context(cafile=str(azurite.certificate))
    with urllib.request.urlopen(url, context=context) as answer:
        content: bytes = answer.read()
    return content


def test_a_user_delegation_key_signs_every_odd_key_and_clone(
    lake: Azurite, identities: Identities, tmp_path: Path
) -> None:
    tables = ["odd", *absolute_paths(lake.account, SOURCE)]
    with serving(lake, tmp_path, tables, secret(identities)) as gateway:
        opened = []
        for table in tables:
            for file in files_of(gateway, table):
                query = parse_qs(urlsplit(file["url"]).query)
                assert {"skoid", "sktid", "skt", "ske", "sig"} <= query.keys()
                assert query["spr"] == ["https"]
                opened.append(get_over_tls(lake, file["url"]).decode())
        assert sorted(opened) == sorted([*ODD_KEYS, *[KEPT] * (len(tables) - 1)])
        log = gateway.log.read_text()
        for hidden in (identities.client_secret, *identities.granted, "sig="):
            assert hidden not in log


def test_no_url_outlives_the_user_delegation_key(
    lake: Azurite, identities: Identities, tmp_path: Path
) -> None:
    week = 7 * DAY_MS
    with serving(
        lake, tmp_path, ["odd"], secret(identities), preSignedUrlTimeoutSeconds=week // 1000
    ) as gateway:
        now_ms = time.time() * 1000
        for file in files_of(gateway, "odd"):
            key_ends = parse_qs(urlsplit(file["url"]).query)["ske"][0]
            assert parse_qs(urlsplit(file["url"]).query)["se"][0] <= key_ends
            assert 6 * DAY_MS < file["expirationTimestamp"] - now_ms < week - 60_000


def workload(identities: Identities, directory: Path, environment: pytest.MonkeyPatch) -> dict[str, Any]:
    file = directory / "federated-token"
    file.write_text("the-token-of-the-cluster")
    identities.federated_tokens.add(file.read_text())
    environment.setenv("AZURE_CLIENT_ID", CLIENT)
    environment.setenv("AZURE_TENANT_ID", TENANT)
    environment.setenv("AZURE_AUTHORITY_HOST", identities.url)
    environment.setenv("AZURE_FEDERATED_TOKEN_FILE", str(file))
    return {}


def cli(identities: Identities, directory: Path, environment: pytest.MonkeyPatch) -> dict[str, Any]:
    """A program `az` that answers as the CLI does."""
    from support.azure_identity import token  # noqa: PLC0415

    identities.granted.append(granted := token(3600))
    program = directory / "bin" / "az"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'echo \'{{"accessToken": "{granted}", "expiresOn": "2099-01-01 00:00:00.000000",'
        f' "expires_on": {int(time.time()) + 3600}, "tokenType": "Bearer"}}\'\n'
    )
    program.chmod(0o755)
    environment.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return {"identity": "cli"}


@pytest.mark.parametrize("make", [workload, *at_night(cli)])
def test_each_identity_of_the_environment_reads_and_signs(
    lake: Azurite, identities: Identities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    entry = make(identities, tmp_path, monkeypatch)
    with serving(lake, tmp_path / "served", ["odd"], entry) as gateway:
        opened = [get_over_tls(lake, file["url"]).decode() for file in files_of(gateway, "odd")]
        assert sorted(opened) == sorted(ODD_KEYS)
        assert identities.granted


@pytest.mark.parametrize("place", ["machine", *at_night("app service")])
def test_a_managed_identity_reads_and_signs(
    lake: Azurite, identities: Identities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    # These services of a machine have no TLS.
    with running(Identities()) as services:
        variables = {"AZURE_POD_IDENTITY_AUTHORITY_HOST": services.url}
        if place == "app service":
            variables = services.environment()
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        entry = {"identity": "managedIdentity", "clientId": CLIENT} if place == "app service" else {}
        with serving(lake, tmp_path, ["odd"], entry) as gateway:
            assert len(files_of(gateway, "odd")) == len(ODD_KEYS)
        assert services.granted
        assert not identities.granted


def test_tokens_are_renewed_before_they_end(lake: Azurite, identities: Identities, tmp_path: Path) -> None:
    identities.seconds = 5
    with serving(lake, tmp_path, ["odd"], secret(identities)) as gateway:
        ended = time.monotonic() + identities.seconds
        # Each answer is whole until the first token has ended and another one is used.
        while time.monotonic() < ended or len(identities.granted) < 2:
            assert len(files_of(gateway, "odd")) == len(ODD_KEYS)
            assert time.monotonic() < ended + WAIT_SECONDS
            time.sleep(0.05)


REFUSALS = {
    "a wrong secret": ({"clientSecret": "another"}, 7000215),
    "another client": ({"clientId": "00000000-0000-0000-0000-000000000000"}, 700016),
    "another directory": ({"tenantId": "00000000-0000-0000-0000-000000000000"}, 90002),
    "a wrong clock": ({}, 700024),
    "an ended secret": ({}, 7000222),
}


@pytest.mark.parametrize("refusal", some_at_night(REFUSALS.values()), ids=REFUSALS)
def test_a_refused_identity_fails_its_own_tables_alone(
    lake: Azurite, identities: Identities, demo_tables: Path, tmp_path: Path, refusal: tuple[Any, int]
) -> None:
    change, number = refusal
    if not change:
        identities.failures += [entra_error("invalid_client", number, 401)] * 20
    entry = secret(identities) | change
    shared = [
        share("demo", {"odd": location(lake, "odd")}),
        share("local", {"cities": str(demo_tables / "cities")}),
    ]
    section = {"storages": storages(lake, **entry), "drainDelaySeconds": 0}
    with running_gateway(tmp_path, shared, section) as gateway:
        answer = gateway.query("demo.default.odd")
        assert (answer.status, answer.json["errorCode"]) == (403, "PERMISSION_DENIED")
        assert "AADSTS" not in answer.json["message"]
        assert gateway.query("local.default.cities").status == 200
        log = gateway.logged(f"AADSTS{number}")
        assert entry["clientSecret"] not in log


@pytest.mark.nightly
def test_a_throttled_or_broken_token_service_is_tried_again(
    lake: Azurite, identities: Identities, tmp_path: Path
) -> None:
    identities.failures += [THROTTLED, Response(500, b"broken")]
    with serving(lake, tmp_path, ["odd"], secret(identities)) as gateway:
        deadline = time.monotonic() + 30
        while (answer := gateway.query("demo.default.odd")).status != 200:
            assert answer.status in {403, 503}, answer.body
            assert time.monotonic() < deadline, gateway.log.read_text()[-3000:]
            time.sleep(0.05)
    # A restarted server needs nothing of the one before.
    with serving(lake, tmp_path, ["odd"], secret(identities)) as gateway:
        assert len(files_of(gateway, "odd")) == len(ODD_KEYS)
