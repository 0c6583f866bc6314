"""`delta-gateway check` on real stores: the identity, its end, what it may do, and who mends an error."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.aws_identity import ROLE, Sts, running_sts
from support.azure_identity import CLIENT, TENANT, Identities, running
from support.azurite_server import Azurite
from support.commands import forked_command
from support.gateway_process import configuration, share, storage
from support.google_identity import GoogleIdentity
from support.google_storage import GoogleStorage
from support.odd_tables import ODD_KEYS, in_log, write_log
from support.versitygw import S3Server, VersityGw

NAME = "checked"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("check") / "t"
    write_log(root, {in_log(key): key.encode() for key in ODD_KEYS})
    for key in ODD_KEYS:
        (root / key).parent.mkdir(exist_ok=True)
        (root / key).write_bytes(key.encode())
    return root


class Checked:
    """The output of the command, and its exit code."""

    def __init__(
        self,
        directory: Path,
        location: str,
        entry: dict[str, Any],
        access_modes: Sequence[str] = ("url",),
        **variables: str,
    ) -> None:
        file = directory / "checked.yaml"
        section = {"storages": [{"prefix": location, **entry}]}
        shared = share("s", {"t": f"{location}t"}, accessModes=list(access_modes))
        file.write_text(yaml.safe_dump(configuration([shared], 0, section)))
        ended = forked_command("check", "-c", file, directory=directory, COLUMNS="400", **variables)
        self.code, self.output = ended.returncode, ended.stdout

    def row(self, location: str) -> list[str]:
        """The cells of the storage's row: identity, end, and what the identity may do."""
        (row,) = (line for line in self.output.splitlines() if line.startswith(f"{location}\t"))
        return [cell.strip() for cell in row.split("\t")][1:]


def of_azure(azurite: Azurite, container: str = NAME) -> str:
    return f"abfss://{container}@{azurite.account}.dfs.core.windows.net/"


def of_client(identities: Identities) -> dict[str, Any]:
    return {
        "authorityHost": identities.url,
        "tenantId": TENANT,
        "clientId": CLIENT,
        "clientSecret": identities.client_secret,
    }


MAY = ["yes"] * 4
"""It may list, read and sign, and a URL opens."""


def test_a_client_on_azure_and_one_without_a_secret(
    azurite_over_tls: Azurite, table: Path, tmp_path: Path
) -> None:
    azurite_over_tls.upload(table, NAME, "t")
    trusted = dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), str(azurite_over_tls.certificate))
    location = of_azure(azurite_over_tls)
    with running(Identities(), azurite_over_tls.certificate) as identities:
        entry = of_client(identities) | {"endpoint": azurite_over_tls.endpoint}
        found = Checked(tmp_path, location, entry, **trusted)
        assert found.code == 0, found.output
        identity, ends, *may = found.row(location)
        assert identity == f"the client {CLIENT}"
        assert datetime.strptime(ends, "%Y-%m-%d %H:%M:%SZ").replace(tzinfo=UTC) > datetime.now(UTC)
        assert may == MAY
        wrong = Checked(tmp_path, location, entry | {"clientSecret": "another"}, **trusted)
        assert wrong.code == 1
        assert wrong.row(location)[0] == "none found"
        assert "AADSTS7000215: the client secret is wrong" in wrong.output
        for hidden in (*identities.granted, "another", identities.client_secret, "sig="):
            assert hidden not in wrong.output + found.output


@pytest.mark.nightly
def test_an_account_key_on_azure(azurite: Azurite, table: Path, tmp_path: Path) -> None:
    azurite.upload(table, NAME, "t")
    entry = {"endpoint": azurite.endpoint, "accountKey": azurite.account_key}
    found = Checked(tmp_path, of_azure(azurite), entry)
    assert found.code == 0, found.output
    assert found.row(of_azure(azurite)) == ["accountKey of the configuration", "never", *MAY]
    wrong = Checked(tmp_path, of_azure(azurite), entry | {"accountKey": "d3Jvbmc="})
    assert wrong.code == 1
    # Azure itself answers AuthenticationFailed.
    assert "the store answers 403 AuthorizationFailure: " in wrong.output
    absent = Checked(tmp_path, of_azure(azurite, "absent"), entry)
    assert (absent.code, absent.row(of_azure(azurite, "absent"))[2]) == (1, "no")
    for hidden in (azurite.account_key, "d3Jvbmc=", "sig="):
        assert hidden not in found.output + wrong.output + absent.output


@pytest.fixture
def bucket(google_storage_server: GoogleStorage, table: Path) -> dict[str, Any]:
    """The endpoint of a store with the table."""
    google_storage_server.upload(table, NAME, "t")
    google_storage_server.secrets["GOOG1CHECK"] = "the-secret-of-the-check"
    return {"endpoint": google_storage_server.endpoint}


HMAC_KEY = {"accessKeyId": "GOOG1CHECK", "secretAccessKey": "the-secret-of-the-check"}


def test_an_hmac_key_of_google(bucket: dict[str, Any], tmp_path: Path) -> None:
    found = Checked(tmp_path, f"gs://{NAME}/", bucket | HMAC_KEY)
    assert found.code == 0, found.output
    assert found.row(f"gs://{NAME}/") == ["the HMAC key of the configuration", "never", *MAY]
    wrong = Checked(tmp_path, f"gs://{NAME}/", bucket | HMAC_KEY | {"accessKeyId": "GOOG1DELETED"})
    assert wrong.code == 1
    assert "403 InvalidAccessKeyId" in wrong.output


def test_a_federated_identity_of_google_that_may_not_sign(
    bucket: dict[str, Any], google_account: GoogleIdentity, tmp_path: Path
) -> None:
    file = google_account.external_account_file(tmp_path, impersonates=False)
    found = Checked(tmp_path, f"gs://{NAME}/", bucket | {"credentialsFile": str(file)})
    assert found.code == 1
    assert found.row(f"gs://{NAME}/")[2:] == ["yes", "yes", "no", "no"]
    assert "can read, but not sign; give an HMAC key" in found.output


def test_more_files_than_iam_may_sign(
    bucket: dict[str, Any], google_account: GoogleIdentity, tmp_path: Path
) -> None:
    file = google_account.external_account_file(tmp_path, impersonates=True)
    entry = bucket | {"credentialsFile": str(file), "maxRemoteSignatures": len(ODD_KEYS) - 1}
    found = Checked(tmp_path, f"gs://{NAME}/", entry)
    assert found.row(f"gs://{NAME}/")[2:] == MAY
    assert f"its {len(ODD_KEYS)} files are more than maxRemoteSignatures" in found.output


def test_a_bucket_of_google_whose_requester_pays(
    google_storage_server: GoogleStorage,
    google_account: GoogleIdentity,
    bucket: dict[str, Any],
    tmp_path: Path,
) -> None:
    google_storage_server.requester_pays[NAME] = "my-project"
    try:
        entry = bucket | {"credentialsFile": str(google_account.service_account_file(tmp_path))}
        found = Checked(tmp_path, f"gs://{NAME}/", entry)
        assert found.code == 1
        assert (
            "UserProjectMissing: the bucket's requester pays; the operator sets `userProject`" in found.output
        )
        paying = Checked(tmp_path, f"gs://{NAME}/", entry | {"userProject": "my-project"})
        assert (paying.code, paying.row(f"gs://{NAME}/")[2:]) == (0, MAY)
    finally:
        del google_storage_server.requester_pays[NAME]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"region": "eu-west-1"}, "the bucket is in the region us-east-1; the operator sets `region`"),
        ({"secretAccessKey": "wrong"}, "403 SignatureDoesNotMatch"),
    ],
    ids=["region", "secret"],
)
def test_refusals_of_an_s3_server(
    versitygw: VersityGw, table: Path, tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    versitygw.upload(table, NAME, "t")
    entry = {key: value for key, value in storage(versitygw).items() if key != "prefix"}
    found = Checked(tmp_path, f"s3://{NAME}/", entry | change)
    assert found.code == 1
    assert reason in found.output, found.output


def test_a_role_that_the_trust_policy_refuses(versitygw: VersityGw, tmp_path: Path) -> None:
    keys = {"accessKeyId": "AKIATESTS", "secretAccessKey": "the-long-lived-secret"}
    sts = Sts(keys["accessKeyId"], keys["secretAccessKey"], external_id="share-2026")
    with running_sts(sts):
        entry = {key: value for key, value in storage(versitygw).items() if key != "prefix"}
        entry |= keys | {"roleArn": ROLE, "externalId": "another", "stsEndpoint": sts.url}
        found = Checked(tmp_path, f"s3://{NAME}/", entry)
    assert found.code == 1
    assert found.row(f"s3://{NAME}/")[0] == "none found"
    assert "403 (AccessDenied): the role's trust policy must name the identity" in found.output


def test_a_role_whose_session_is_shorter_than_a_url(
    s3_with_sts: S3Server, table: Path, tmp_path: Path
) -> None:
    s3_with_sts.upload(table, NAME, "t")
    entry = {key: value for key, value in storage(s3_with_sts).items() if key != "prefix"}
    entry |= {"roleArn": ROLE, "stsEndpoint": s3_with_sts.endpoint, "sessionSeconds": 900}
    found = Checked(tmp_path, f"s3://{NAME}/", entry)
    assert found.code == 0, found.output
    identity, _, *may = found.row(f"s3://{NAME}/")
    assert (identity, may) == (f"the role {ROLE}, assumed by accessKeyId of the configuration", MAY)
    assert "shorter than preSignedUrlTimeoutSeconds, 3600 s" in found.output


def test_a_temporary_credential_of_a_store_with_sessions(
    s3_with_sts: S3Server, table: Path, tmp_path: Path
) -> None:
    s3_with_sts.upload(table, NAME, "t")
    entry = {key: value for key, value in storage(s3_with_sts).items() if key != "prefix"}
    entry |= {"directoryRoleArn": ROLE, "stsEndpoint": s3_with_sts.endpoint}
    found = Checked(tmp_path, f"s3://{NAME}/", entry, ["url", "dir"])
    assert found.code == 0, found.output
    assert f"temporary credentials read their directory alone, as one of s3://{NAME}/t until " in found.output
