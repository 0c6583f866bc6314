"""`delta-gateway doctor` as a command: its output and its exit code."""

import json
import re
from pathlib import Path

import pytest
from support.http_service import json_response
from support.sharing_server import TABLE, SharingServer

from gateway.__main__ import main
from gateway.doctor import shares


def test_each_step_is_a_line_and_each_problem_has_its_owner(
    sharing_server: SharingServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = sharing_server.profile(tmp_path / "acme.share")
    assert main(["doctor", str(profile)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "The share can be read."
    assert [re.split(" {2,}", line)[0] for line in printed[:-1]] == ["ok"] * 11
    profile.chmod(0o644)
    sharing_server.answers["/delta-sharing/shares"] = json_response({"errorCode": "X", "message": "no"}, 401)
    assert main(["doctor", str(profile)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert "fail  server         the server answers the list of shares with 401 X: no" in printed
    assert printed[-2].strip().startswith("-> provider: the token was replaced")
    assert printed[-1].endswith("steps failed; to fix by: recipient, provider")


def test_warnings_alone_are_a_success(
    sharing_server: SharingServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = sharing_server.profile(tmp_path / "acme.share")
    profile.chmod(0o640)
    assert main(["doctor", f"{profile}#sales.public.orders", "--timeout", "5"]) == 0
    assert capsys.readouterr().out.endswith("with 1 warning; to fix by: recipient\n")


def test_the_findings_as_json(
    sharing_server: SharingServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = sharing_server.profile(tmp_path / "acme.share")
    assert main(["doctor", str(profile), "--json", "--table", "sales.public.none"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert document["steps"][0] == {
        "step": "profile",
        "status": "ok",
        "message": "version 1, a bearer token",
        "owner": None,
        "advice": "",
    }
    assert document["steps"][-1]["owner"] == "recipient"


def test_a_share_without_tables_is_not_called_readable(
    sharing_server: SharingServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = sharing_server.profile(tmp_path / "acme.share")
    sharing_server.answers["/delta-sharing/shares/sales/all-tables"] = json_response({})
    assert main(["doctor", str(profile)]) == 0
    assert capsys.readouterr().out.endswith("\nNo table was read, with 1 warning; to fix by: provider\n")


def test_a_table_that_was_not_queried_is_not_called_readable(
    sharing_server: SharingServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = sharing_server.profile(tmp_path / "acme.share")
    protocol, metadata, _ = sharing_server.delta()
    metadata["metaData"]["accessModes"] = ["dir"]
    sharing_server.say(f"{TABLE}/metadata", protocol, metadata)
    assert main(["doctor", str(profile)]) == 0
    assert "\nNo table was read, with 1 warning" in capsys.readouterr().out


def test_a_defect_of_the_doctor_is_a_finding_without_the_text_of_the_error(
    sharing_server: SharingServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def defective(*_: object) -> None:
        raise LookupError("private-directory")

    monkeypatch.setattr(shares, "_check_clock", defective)
    profile = sharing_server.profile(tmp_path / "acme.share")
    assert main(["doctor", str(profile), "--json"]) == 1
    printed = capsys.readouterr().out
    last = json.loads(printed)["steps"][-1]
    assert (last["step"], last["status"]) == ("doctor", "fail")
    assert "(LookupError)" in last["message"]
    assert "private-directory" not in printed


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "x", "1e10"])
def test_a_time_out_is_a_number_of_seconds_up_to_a_day(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["doctor", "a.share", f"--timeout={text}"])
    assert refused.value.code == 2
    assert "is no number of seconds above 0" in capsys.readouterr().err


def test_a_malformed_table_name_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(tmp_path / "a.share"), "--table", "orders"]) == 1
    assert capsys.readouterr().err == (
        "delta-gateway: a shared table is named share.schema.table, not 'orders'\n"
    )
