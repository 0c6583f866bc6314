"""Credentials of AWS from variables and the shared file."""

from pathlib import Path

from gateway.config import Secret
from gateway.storage.aws.credentials import default_credentials, default_region


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
