"""Credentials of AWS from variables and the shared file."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.config import Location, Secret
from gateway.config.storages.s3 import S3Entry
from gateway.storage.aws.credentials import checked_region, default_credentials, default_region
from gateway.storage.aws.identity import AwsIdentity
from gateway.storage.credentials import CredentialsUnavailable

ENTRY = S3Entry(Location("s3", "bucket", ""))


def test_the_default_chain_reads_variables_then_the_shared_file(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
        "[other]\naws_access_key_id = c\naws_secret_access_key = d%\naws_session_token = e\n"
    )
    (tmp_path / ".aws/config").write_text("[default]\nregion = eu-1\n[profile other]\nregion = eu-2\n")
    home = {"HOME": str(tmp_path)}
    found = default_credentials(home)
    assert found is not None
    assert found.access_key_id.reveal() == "a"
    other = default_credentials(home | {"AWS_PROFILE": "other"})
    assert other is not None
    assert other.session_token == Secret("e")
    variables = default_credentials(home | {"AWS_ACCESS_KEY_ID": "v", "AWS_SECRET_ACCESS_KEY": "w"})
    assert variables is not None
    assert variables.access_key_id.reveal() == "v"
    assert default_region(home) == "eu-1"
    assert default_region(home | {"AWS_PROFILE": "other"}) == "eu-2"
    assert default_region({"AWS_DEFAULT_REGION": "x"}) == "x"
    assert default_credentials({"HOME": "/nonexistent"}) is None


KEYS = {"AWS_ACCESS_KEY_ID": "v", "AWS_SECRET_ACCESS_KEY": "w", "HOME": "/nonexistent"}


@pytest.mark.parametrize(
    "name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"]
)
def test_a_line_break_in_a_variable_is_an_error_with_its_name(name: str) -> None:
    environment = KEYS | {name: "hidden\n"}
    with pytest.raises(CredentialsUnavailable, match=f"the variable {name}.* has a line break") as refused:
        AwsIdentity(ENTRY, environment, default_region(environment)).request()
    assert refused.value.lasting
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            b"[default]\naws_access_key_id = hidden\naws_access_key_id = hidden\n",
            "line 3 of {} does not parse",
        ),
        (b"[default]\nhidden\n", "line 2 of {} does not parse"),
        (b"aws_access_key_id = hidden\n", "line 1 of {} does not parse"),
        (b"\xef\xbb\xbf[default]\naws_access_key_id = hidden\n", "{} begins with a byte order mark"),
        (b"[default]\nx = \xff\n", "{} does not parse"),
        (b"[default]\naws_access_key_id = a\x01\naws_secret_access_key = hidden", "aws_access_key_id of the"),
    ],
)
def test_a_file_that_does_not_parse_is_an_error_with_its_path(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    file = tmp_path / "credentials"
    file.write_bytes(content)
    environment = {"HOME": str(tmp_path), "AWS_SHARED_CREDENTIALS_FILE": str(file)}
    with pytest.raises(CredentialsUnavailable) as refused:
        default_credentials(environment)
    assert reason.format(file) in str(refused.value)
    assert str(file) in str(refused.value)
    assert "hidden" not in str(refused.value)
    # Keys of variables need no file.
    assert default_credentials(KEYS | environment) is not None


def test_a_region_of_a_file_that_does_not_parse_is_an_error_and_not_the_default_one(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text("[default\nregion = eu-1\n")
    environment = KEYS | {"HOME": str(tmp_path)}
    with pytest.raises(CredentialsUnavailable, match="config does not parse"):
        AwsIdentity(ENTRY, environment, default_region(environment)).request()
    assert AwsIdentity(ENTRY, environment | {"AWS_REGION": "eu-1"}, "eu-1").request()


def test_the_default_profile_may_have_the_title_of_the_others(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(
        "[default]\nregion = eu-1\n"
        "[profile default]\nregion = eu-2\naws_access_key_id = a\naws_secret_access_key = b\n"
    )
    home = {"HOME": str(tmp_path)}
    assert default_region(home) == "eu-2"
    found = default_credentials(home)
    assert found is not None
    assert found.access_key_id.reveal() == "a"


@pytest.mark.parametrize("directory", ["~", "$HOME", "${HOME}"])
def test_names_of_files_in_variables_may_begin_at_the_home(tmp_path: Path, directory: str) -> None:
    (tmp_path / "keys").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    (tmp_path / "settings").write_text("[default]\nregion = eu-1\n")
    environment = {
        "HOME": str(tmp_path),
        "AWS_SHARED_CREDENTIALS_FILE": f"{directory}/keys",
        "AWS_CONFIG_FILE": f"{directory}/settings",
    }
    found = default_credentials(environment)
    assert found is not None
    assert found.file == tmp_path / "keys"
    assert default_region(environment) == "eu-1"


def test_names_of_files_in_variables_keep_what_names_no_variable(tmp_path: Path) -> None:
    (tmp_path / "a$$b${c").write_text("[default]\nregion = eu-1\n")
    environment = {"HOME": "/nonexistent", "AWS_CONFIG_FILE": f"{tmp_path}/a$$b${{c"}
    assert default_region(environment) == "eu-1"


def test_the_keys_of_variables_end_when_a_variable_says_so() -> None:
    """As `aws configure export-credentials` writes it."""
    for text, end in (
        ("2026-11-29T12:00:00+00:00", datetime(2026, 11, 29, 12, tzinfo=UTC)),
        ("2026-11-29T12:00:00Z", datetime(2026, 11, 29, 12, tzinfo=UTC)),
        ("2026-11-29T12:00:00", datetime(2026, 11, 29, 12, tzinfo=UTC)),
        ("", None),
    ):
        found = default_credentials(KEYS | {"AWS_CREDENTIAL_EXPIRATION": text})
        assert found is not None
        assert found.expires == end
    with pytest.raises(
        CredentialsUnavailable, match="AWS_CREDENTIAL_EXPIRATION is no ISO 8601 time"
    ) as refused:
        default_credentials(KEYS | {"AWS_CREDENTIAL_EXPIRATION": "hidden"})
    assert refused.value.lasting
    assert "hidden" not in str(refused.value)


def test_names_of_profiles_may_have_quotes(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text('[profile "x"]\nregion = eu-1\n[profile "a b"]\nregion = eu-2\n')
    assert checked_region({"HOME": str(tmp_path)}, "x") == "eu-1"
    assert checked_region({"HOME": str(tmp_path)}, "a b") == "eu-2"
