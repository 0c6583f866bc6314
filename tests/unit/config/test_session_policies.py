"""Session policies that are too long stop the start, a reload and the check, not the first recipient."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.cli.check import start_problems
from gateway.config import Config, ConfigError, loads
from gateway.config.directory_access import check_session_policies
from gateway.server.accepted_config import accepted
from gateway.server.start import started

ROLE = "arn:aws:iam::123456789012:role/reader"
LONG = "s3://lake/" + "ж" * 90


def settings(location: str, *, networks: int = 0, shares: str = "sales", volume: bool = False) -> str:
    table = {"name": "orders", "location": location, "historyShared": True, "accessModes": ["dir"]}
    one = {"volumes": [{"name": "files", "location": location}]} if volume else {"tables": [table]}
    alice: dict[str, Any] = {"name": "alice", "shares": [shares], "tokens": [{"sha256": "0" * 64}]}
    bob = {**alice, "name": "bob", "tokens": [{"sha256": "1" * 64}], "networks": ["192.0.2.0/24"]}
    alice["networks"] = [f"203.0.{number}.0/24" for number in range(networks)]
    return yaml.safe_dump(
        {
            "version": 1,
            "shares": [{"name": "sales", "schemas": [{"name": "public", **one}]}, {"name": "another"}],
            "gateway": {"recipients": [alice, bob], "storages": [{"prefix": "s3://lake/", "roleArn": ROLE}]},
        }
    )


def loaded(*arguments: Any, **keys: Any) -> Config:
    return loads(settings(*arguments, **keys), environment={})


@pytest.mark.parametrize("volume", [False, True])
def test_a_path_whose_policy_is_too_long_is_refused_by_name(*, volume: bool) -> None:
    name = "the volume sales.public.files" if volume else "sales.public.orders"
    with pytest.raises(ConfigError, match=f"shares: {name} cannot have .* accept 2048; shorten its path"):
        check_session_policies(loaded(LONG, shares="another", volume=volume), "share.yaml")


def test_networks_that_make_a_policy_too_long_are_refused_with_their_recipient() -> None:
    check_session_policies(loaded("s3://lake/orders", networks=10))
    config = loaded("s3://lake/orders", networks=60)
    with pytest.raises(ConfigError, match=r"networks of the recipient alice .* or merge the networks"):
        check_session_policies(config)
    # Without the share, and without directory access, they make no policy.
    check_session_policies(loaded("s3://lake/orders", networks=60, shares="another"))
    check_session_policies(loads(settings(LONG).replace("- dir\n", "- url\n"), environment={}))


def test_policies_of_stores_without_session_policies_have_no_length() -> None:
    google = "gs://lake/" + "ж" * 300
    check_session_policies(loaded(google, shares="another"))


def test_a_start_a_reload_and_the_check_refuse_them(tmp_path: Path) -> None:
    file = tmp_path / "share.yaml"
    file.write_text(settings(LONG))
    with pytest.raises(ConfigError, match="the session policy"):
        started(file)
    with pytest.raises(ConfigError, match="the session policy"):
        accepted(file, loaded("s3://lake/orders"), workers=1)
    assert [text for text in start_problems(loaded(LONG)) if "the session policy" in text]
