"""The official Python client gets its tokens from an OpenID provider, and reads tables with them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from support.gateway_process import share
from support.official_client import ClientError, OfficialClient
from support.openid_process import openid_process
from support.processes import free_port, server_process, wait_for_port
from tables.demo import ROWS

from gateway.__main__ import main

AUDIENCE = "https://sharing.example.com"
CLIENT, SECRET = "acme-reporting", "the secret of acme"
TABLE = "demo.default.cities"


@dataclass(frozen=True)
class OpenIdProvider:
    """A running provider with one client."""

    port: int
    secret: str = field(default=SECRET, repr=False)

    @property
    def issuer(self) -> str:
        """The issuer's URL."""
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def openid_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenIdProvider]:
    directory, port = tmp_path_factory.mktemp("openid-provider"), free_port()
    with openid_process(directory, "server.mjs", port, CLIENT, SECRET, AUDIENCE):
        yield OpenIdProvider(port)


@pytest.fixture(scope="module")
def profiles(
    openid_provider: OpenIdProvider, demo_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A directory with the profiles of a running gateway, made as a provider of data makes them."""
    directory = tmp_path_factory.mktemp("federation")
    config, port = directory / "share.yaml", free_port()
    issuer = {"issuer": openid_provider.issuer, "allowPrivateAddresses": True}
    top = {
        "version": 1,
        "host": "127.0.0.1",
        "port": port,
        "shares": [share("demo", {name: str(demo_tables / name) for name in ROWS})],
        "gateway": {"oidc": {"issuers": [issuer]}, "drainDelaySeconds": 0},
    }
    config.write_text(yaml.safe_dump(top))
    for name, subject, audience in (
        ("acme", CLIENT, AUDIENCE),
        ("another-subject", "another", AUDIENCE),
        ("another-audience", f"{CLIENT}-2", "https://other.example.com"),
    ):
        policy = ["--issuer", openid_provider.issuer, "--subject", subject, "--audience", audience]
        client = ["--token-endpoint", f"{openid_provider.issuer}/token", "--client-id", CLIENT]
        files = ["-c", str(config), "--profile", str(directory / f"{name}.share")]
        options = ["--share", "demo", "--scope", "sharing", "--oidc", *policy, *client, *files]
        assert main(["recipient", "add", name, *options]) == 0
    complete(directory / "acme.share", SECRET)
    with server_process(config, directory / "log") as process:
        wait_for_port(port, process)
        yield directory
        log = (directory / "log").read_text()
        assert "Traceback" not in log
        assert SECRET not in log


def complete(profile: Path, secret: str) -> Path:
    """Replace the placeholder of the client's secret, as a recipient does."""
    content = json.loads(profile.read_text())
    profile.write_text(json.dumps(content | {"clientSecret": secret}))
    return profile


def test_the_official_client_reads_by_tokens_of_its_identity_provider(
    official_client: OfficialClient, openid_provider: OpenIdProvider, profiles: Path
) -> None:
    assert openid_provider.secret
    profile = profiles / "acme.share"
    assert TABLE in official_client.call("shares", profile)
    rows = official_client.rows(profile, TABLE, ["city"])
    assert rows == sorted((row[0],) for row in ROWS["cities"])


def test_a_wrong_secret_gets_no_token(
    official_client: OfficialClient, openid_provider: OpenIdProvider, profiles: Path, tmp_path: Path
) -> None:
    assert openid_provider.secret
    profile = tmp_path / "wrong.share"
    profile.write_text((profiles / "acme.share").read_text())
    with pytest.raises(ClientError):
        official_client.call("shares", complete(profile, "another secret"))


def test_the_doctor_reads_by_the_same_tokens_and_names_a_wrong_secret(
    openid_provider: OpenIdProvider, profiles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", f"{profiles / 'acme.share'}#{TABLE}"]) == 0
    assert "the token endpoint issues tokens" in capsys.readouterr().out
    profile = tmp_path / "wrong.share"
    profile.write_text((profiles / "acme.share").read_text())
    profile.chmod(0o600)
    assert main(["doctor", str(complete(profile, "another secret"))]) == 1
    printed = capsys.readouterr().out
    assert "invalid_client" in printed
    assert "-> recipient: compare clientId and clientSecret" in printed
    assert "another secret" not in printed
    # A template is refused before any request.
    template = profiles / "another-subject.share"
    assert main(["doctor", str(template)]) == 1
    assert "placeholder of a template: clientSecret" in capsys.readouterr().out


def test_a_policy_that_is_removed_ends_the_access(
    official_client: OfficialClient, openid_provider: OpenIdProvider, profiles: Path
) -> None:
    profile, config = profiles / "acme.share", str(profiles / "share.yaml")
    policy = ["--issuer", openid_provider.issuer, "--audience", AUDIENCE, "--subject", CLIENT]
    assert main(["recipient", "policy", "remove", "acme", "-c", config]) == 0

    def read_for_ever() -> None:
        # The test's time limit ends a policy that stays in force.
        while True:
            official_client.call("shares", profile)

    with pytest.raises(ClientError, match="401"):
        read_for_ever()
    assert main(["recipient", "policy", "add", "acme", "-c", config, *policy]) == 0
