"""Secrets of a configuration: their sources, and that no text shows them."""

from pathlib import Path

import pytest

from gateway.config import ConfigError, Secret, load, loads

MINIMAL = "version: 1\nauthorization: {bearerToken: t}\n"


def test_a_secret_comes_from_a_file_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    (tmp_path / "share.yaml").write_text("version: 1\nauthorization: {bearerTokenFile: token}\n")
    config = load(tmp_path / "share.yaml", {})
    assert config.authorization is not None
    assert config.authorization.bearer_token.reveal() == "from-a-file"
    (tmp_path / "token").write_text("from-an-editor\n", encoding="utf-8-sig")
    config = load(tmp_path / "share.yaml", {})
    assert config.authorization is not None
    assert config.authorization.bearer_token.reveal() == "from-an-editor"


def test_a_secret_given_twice_or_in_a_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    with pytest.raises(ConfigError, match="given twice, directly and by its file"):
        loads("version: 1\nauthorization: {bearerToken: a, bearerTokenFile: token}", directory=tmp_path)
    with pytest.raises(
        ConfigError, match="expected the path of a readable text file with the secret: No such file"
    ):
        loads("version: 1\nauthorization: {bearerTokenFile: absent}", directory=tmp_path)


SECRETS = """
version: 1
authorization: {bearerToken: secret-1-token}
gateway:
  storages:
  - prefix: s3://b
    accessKeyId: secret-2-key
    secretAccessKey: secret-3-key
    sessionToken: secret-4-session
  tokenKeys: [{id: k1, secret: secret-5-of-token-keys}]
"""


def test_secrets_never_print() -> None:
    config = loads(SECRETS)
    for shown in (repr(config), str(config), f"{config}", f"{config.gateway.token_keys[0].secret}"):
        assert "secret-" not in shown
    assert config.gateway.storages[0].secret_access_key == Secret("secret-3-key")
    with pytest.raises(TypeError):
        Secret("x").__reduce__()


def test_errors_about_a_secret_do_not_print_it() -> None:
    with pytest.raises(ConfigError) as caught:
        loads(MINIMAL + "gateway:\n  tokenKeys: [{id: k, secret: hush}]")
    assert "hush" not in str(caught.value)
