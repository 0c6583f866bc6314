"""`delta-gateway recipient` as a command: its files, its refusals and their order."""

import errno
import json
import os
import pwd
import re
import shlex
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from datetime import datetime
from itertools import cycle

import pytest
from support.documentation import README, console_lines, page, share_yaml
from support.nightly import at_night

from gateway.__main__ import main
from gateway.authentication.credential_table import token_hash
from gateway.cli.profile_file import profile_file
from gateway.config.database import DatabasePlace
from gateway.governance.recipient_store import RecipientDatabase
from gateway.times import DAY_SECONDS, epoch_ms, utc_text

CONFIG = """
version: 1
shares: [{name: sales}, {name: logs}, {name: a share}]
gateway: {audit: {file: audit.jsonl}}
"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "share.yaml"
    file.write_text(CONFIG)
    return file


@pytest.fixture
def run(config, capsys):
    """Run `recipient ..` and give its exit code, standard output and standard error."""

    def run(operation, *arguments):
        code = main(["recipient", operation, "-c", str(config), *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def actions(tmp_path):
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    return [(record["actionName"], record["recipientName"]) for record in map(json.loads, lines)]


def test_positional_arguments_may_stand_around_the_options(config, capsys):
    assert main(["recipient", "add", "acme", "-c", str(config), "--share", "sales"]) == 0
    # As the recipients page writes it.
    assert main(["recipient", "grant", "acme", "-c", str(config), "logs"]) == 0
    assert main(["recipient", "grant", "-c", str(config), "acme", "a share", "--allow", "192.0.2.1"]) == 0
    assert "shares a share, logs, sales; from 192.0.2.1/32" in capsys.readouterr().out
    with pytest.raises(SystemExit) as refused:
        main(["recipient", "grant", "acme", "-c", str(config), "logs", "--unheard-of"])
    assert refused.value.code == 2
    with pytest.raises(SystemExit):
        main(["recipient", "grant", "-c", str(config)])
    assert "required: NAME" in capsys.readouterr().err


@pytest.mark.parametrize("operation", ["add", "rotate"])
@pytest.mark.parametrize("place", ["absent/acme.share", "file/acme.share", "taken.share"])
def test_a_profile_that_cannot_be_written_changes_nothing(run, tmp_path, operation, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "taken.share").write_text("precious")
    name = "acme" if operation == "rotate" else "new"
    token = json.loads(run("add", "acme", "--expires", "never")[1])["bearerToken"]
    before = run("list")
    code, out, err = run(operation, name, "--profile", tmp_path / place)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert place.partition("/")[0] in err
    assert run("list") == before
    with closing(RecipientDatabase(DatabasePlace(tmp_path / "recipients.db"), now_ms=lambda: 0)) as database:
        [record] = database.list()
        assert [one.sha256 for one in record.tokens] == [token_hash(token).hex()]
        assert record.tokens[0].expires_ms is None
    assert (tmp_path / "taken.share").read_text() == "precious"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.fixture(params=[None, errno.EPERM, errno.EOPNOTSUPP])
def links(request, monkeypatch):
    """A file system with second names of files, or without them."""

    def link(source, target):
        raise OSError(request.param, "no links")

    if request.param is not None:
        monkeypatch.setattr(os, "link", link)


@pytest.mark.usefixtures("links")
def test_a_profile_is_its_owners_whole_and_replaces_another_with_overwrite(run, tmp_path):
    profile = tmp_path / "acme.share"
    assert run("add", "acme", "--profile", profile)[0] == 0
    assert stat.S_IMODE(profile.stat().st_mode) == 0o600
    first = json.loads(profile.read_text())["bearerToken"]
    assert run("rotate", "acme", "--profile", profile)[0] == 1
    assert json.loads(profile.read_text())["bearerToken"] == first
    code, out, _ = run("rotate", "acme", "--profile", profile, "--overwrite")
    assert (code, "it is not kept anywhere else" in out) == (0, True)
    second = json.loads(profile.read_text())["bearerToken"]
    assert (second != first, stat.S_IMODE(profile.stat().st_mode)) == (True, 0o600)
    assert {path.name for path in tmp_path.iterdir()} == {
        "acme.share",
        "audit.jsonl",
        "recipients.db",
        "share.yaml",
    }


@pytest.mark.usefixtures("links")
@pytest.mark.parametrize("earlier", [None, "an earlier one"])
def test_a_change_that_fails_after_its_profile_takes_the_profile_back(tmp_path, earlier):
    path = tmp_path / "acme.share"
    if earlier is not None:
        path.write_text(earlier)

    before = signal.getsignal(signal.SIGINT)

    def fail():
        with profile_file(path, overwrite=earlier is not None) as file:
            file.write_text('{"bearerToken": "t"}')
            assert "bearerToken" in path.read_text()
            assert signal.getsignal(signal.SIGINT) is not before
            raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(sqlite3.OperationalError):
        fail()
    assert {one.name for one in tmp_path.iterdir()} == ({"acme.share"} if earlier else set())
    if earlier is not None:
        assert path.read_text() == earlier
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("links")
def test_a_profile_that_cannot_take_its_place_leaves_the_earlier_one(tmp_path, monkeypatch):
    path = tmp_path / "acme.share"
    path.write_text("an earlier one")
    replace = type(path).replace

    def fail(source, target):
        if target == path and not source.name.endswith(".earlier"):
            raise OSError(errno.EIO, "Input/output error")
        return replace(source, target)

    monkeypatch.setattr(type(path), "replace", fail)
    with pytest.raises(OSError, match="Input/output error"), profile_file(path, overwrite=True) as file:
        file.write_text('{"bearerToken": "t"}')
    assert [one.read_text() for one in tmp_path.iterdir()] == ["an earlier one"]


def live_tokens(tmp_path):
    with closing(RecipientDatabase(DatabasePlace(tmp_path / "recipients.db"), now_ms=lambda: 0)) as database:
        return [one.sha256 for one in database.show("acme").tokens if one.live(epoch_ms())]


@pytest.mark.parametrize("operation", [["add", "acme"], ["rotate", "acme", "--overwrite"]])
@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_a_failure_after_the_commit_keeps_the_profile(run, tmp_path, monkeypatch, operation, failure):
    profile = tmp_path / "acme.share"
    if operation[0] == "rotate":
        run("add", "acme", "--profile", profile)

    def fail(*_arguments):
        raise failure

    with monkeypatch.context() as patched:
        patched.setattr("gateway.governance.audited_database.change_record", fail)
        if failure is KeyboardInterrupt:
            assert run(*operation, "--profile", profile)[0] == 130
        else:
            with pytest.raises(failure):
                run(*operation, "--profile", profile)
    token = json.loads(profile.read_text())["bearerToken"]
    assert live_tokens(tmp_path) == [token_hash(token).hex()]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
@pytest.mark.parametrize("kind", ["pipe", "directory", "link to a pipe", "device"])
def test_only_a_regular_file_is_replaced(run, tmp_path, overwrite, kind):
    place = tmp_path / "place"
    if kind == "directory":
        place.mkdir()
    elif kind == "device":
        place.symlink_to("/dev/null")
    else:
        os.mkfifo(tmp_path / "pipe")
        place = tmp_path / "pipe" if kind == "pipe" else place
        if kind != "pipe":
            place.symlink_to("pipe")
    before = place.lstat()
    code, out, err = run("add", "acme", "--profile", place, *overwrite)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "is not a regular file" in err
    assert (place.lstat().st_ino, place.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert run("list")[1] == ""


@pytest.mark.parametrize("target_exists", [False, True])
def test_a_profile_is_written_where_a_link_points(run, tmp_path, target_exists):
    (tmp_path / "kept").mkdir()
    link, target = tmp_path / "acme.share", tmp_path / "kept" / "acme.share"
    link.symlink_to("kept/acme.share")
    if target_exists:
        target.write_text("an earlier one")
        assert "exists; --overwrite" in run("add", "acme", "--profile", link)[2]
    assert run("add", "acme", "--profile", link, *["--overwrite"][: int(target_exists)])[0] == 0
    assert link.is_symlink()
    assert "bearerToken" in json.loads(target.read_text())
    assert [path.name for path in target.parent.iterdir()] == ["acme.share"]


@pytest.mark.processes
@pytest.mark.parametrize("printed", [False, True])
@pytest.mark.parametrize("number", [signal.SIGTERM, *at_night(signal.SIGINT)])
def test_a_signal_waits_from_the_profile_to_the_commit(config, tmp_path, capsys, printed, number):
    """The signal comes after the profile and before the commit."""
    profile = tmp_path / "acme.share"
    assert main(["recipient", "add", "acme", "-c", str(config), "--profile", str(profile)]) == 0
    capsys.readouterr()
    code = (
        "import os, signal, sys\n"
        # A process that a shell starts in the background ignores this signal.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from gateway.cli.profile_file import PrintedProfile\n"
        "from gateway.cli.new_file import NewFile\n"
        "from gateway.__main__ import main\n"
        "def with_signal(kind):\n"
        "    write = kind.write_text\n"
        "    def written(self, text):\n"
        "        write(self, text)\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "    kind.write_text = written\n"
        "with_signal(PrintedProfile)\n"
        "with_signal(NewFile)\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    place = [] if printed else ["--profile", str(profile), "--overwrite"]
    ended = subprocess.run(
        [sys.executable, "-P", "-c", code, "recipient", "rotate", "acme", "-c", str(config), *place],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    text = ended.stdout if printed else profile.read_text()
    assert live_tokens(tmp_path) == [token_hash(json.loads(text)["bearerToken"]).hex()]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("keys", "host"),
    [
        ("", "localhost"),
        ("host: 0.0.0.0", "0.0.0.0"),
        ("host: '::'", "::"),
        ("host: sharing.example.com", None),
        ("host: 0.0.0.0", None),
    ],
)
def test_a_profile_of_an_address_for_this_machine_alone_is_warned_of(run, config, tmp_path, keys, host):
    public = "gateway: {publicUrl: 'https://sharing.example.com', " if host is None else "gateway: {"
    config.write_text(CONFIG.replace("gateway: {", public) + keys)
    written = "--profile", tmp_path / "acme.share", "--overwrite"
    for line in (("add", "acme", *written), ("rotate", "acme", *written), ("rotate", "acme")):
        code, _, err = run(*line)
        assert code == 0
        assert ("gateway.publicUrl" in err) == (host is not None)
        assert host is None or f"names the host '{host}'" in err
    for link in (("link", "acme"), ("add", "beta", "--activation")):
        assert ("the link names the host" in run(*link)[2]) == (host is not None)


def test_the_documented_lines_run_with_the_documented_configuration(tmp_path, monkeypatch, capsys):
    (tmp_path / "share.yaml").write_text(share_yaml(README))
    monkeypatch.chdir(tmp_path)
    lines = [line for line in console_lines(README + page("recipients")) if " recipient " in line]
    assert len(lines) >= 7
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    assert "shares sales, sales.public.orders" in capsys.readouterr().out


@pytest.mark.usefixtures("links")
def test_a_file_created_meanwhile_is_not_overwritten(tmp_path):
    path = tmp_path / "acme.share"
    with profile_file(path, overwrite=False) as file:
        path.write_text("another's")
        with pytest.raises(FileExistsError):
            file.write_text('{"bearerToken": "t"}')
    assert [one.read_text() for one in tmp_path.iterdir()] == ["another's"]


def test_a_reader_that_has_left_gets_no_token_and_ends_none(run, config, tmp_path, monkeypatch, capsys):
    token = json.loads(run("add", "acme")[1])["bearerToken"]
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:  # noqa: PTH123 - a descriptor
        monkeypatch.setattr("sys.stdout", pipe)
        assert main(["recipient", "rotate", "acme", "-c", str(config)]) == 1
        monkeypatch.undo()
    with closing(RecipientDatabase(DatabasePlace(tmp_path / "recipients.db"), now_ms=lambda: 0)) as database:
        assert [one.sha256 for one in database.show("acme").tokens] == [token_hash(token).hex()]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "x", "--expires", "9999999d"], "'9999999d' is too long; accepted: up to 3650d"),
        (["rotate", "x", "--expires", "999999999999w"], "is too long; accepted: up to 3650d"),
        (["rotate", "x", "--old-expires", "3651d"], "is too long; accepted: up to 3650d"),
        (["add", "x", "--expires", "0d"], "'0d' is not a token lifetime"),
        (["add", "x", "--expires", "-1d"], "expected one argument"),
        (["add", "x", "--expires", "1.5d"], "is not a duration; accepted: 90d, 12h, 30m, 45s, 2w"),
        (["add", "x", "--expires", "\u0661d"], "is not a duration"),
        (["purge", "--history-older-than", "1y"], "is not a duration"),
    ],
)
def test_a_length_of_time_is_bounded_and_clear(config, tmp_path, capsys, arguments, words):
    operation, *rest = arguments
    with pytest.raises(SystemExit) as refused:
        main(["recipient", operation, "-c", str(config), *rest])
    assert refused.value.code == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "recipients.db").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--link-expires", "60d", "--activation"], "a link's life: expected 1 to 2592000 seconds (30 days)"),
        (["--allow", "10.0.0.300"], "network; accepted: an address, or a network such as 192.0.2.0/24"),
    ],
)
def test_a_refused_value_names_the_accepted_ones(run, arguments, words):
    code, _, err = run("add", "acme", *arguments)
    assert (code, words in err) == (1, True), err


@pytest.mark.parametrize("operation", [["add", "acme"], ["rotate", "old"], ["client", "add", "old"]])
@pytest.mark.parametrize(
    ("given", "days"), [([], 90), (["--expires", "7d"], 7), (["--expires", "never"], None)]
)
def test_a_credential_ends_after_90_days_unless_another_end_is_given(run, tmp_path, operation, given, days):
    run("add", "old", "--expires", "1d")
    before_ms = epoch_ms()
    code, _, err = run(*operation, *given)
    with closing(RecipientDatabase(DatabasePlace(tmp_path / "recipients.db"), now_ms=epoch_ms)) as database:
        record = database.show(operation[-1])
    secrets = [secret for client in record.clients for secret in client.secrets]
    *_, issued = secrets or sorted(record.tokens, key=lambda token: token.created_ms)
    if days is None:
        assert (code, issued.expires_ms) == (0, None)
        assert "never ends" in err
        return
    assert 0 <= issued.expires_ms - before_ms - days * DAY_SECONDS * 1000 < 60_000
    assert issued.expires_ms % 1000 == 0
    assert f"ends at {utc_text(issued.expires_ms)}" in err


def test_the_longest_life_is_listed_and_so_is_one_that_an_earlier_version_accepted(run, tmp_path):
    profile = json.loads(run("add", "acme", "--expires", "3650d")[1])
    assert datetime.fromisoformat(profile["expirationTime"])
    with closing(sqlite3.connect(tmp_path / "recipients.db", isolation_level=None)) as database:
        database.execute("UPDATE tokens SET expires_ms = 9223372036854775807")
    code, out, _ = run("list")
    assert (code, "expires after the year 9999" in out) == (0, True)
    assert run("show", "acme")[0] == 0


def test_the_comment_and_the_history_of_a_deleted_recipient_are_shown(run):
    run("add", "acme", "--comment", "the first partner", "--expires", "never")
    run("add", "other")
    for operation in (["list"], ["show", "acme"]):
        assert "never expires; comment: the first partner\n" in run(*operation)[1]
    run("delete", "acme")
    assert run("show", "acme")[0] == 1
    code, out, _ = run("history", "ACME")
    assert code == 0
    assert [line.split()[1:3] for line in out.splitlines()] == [
        ["acme", "createRecipient"],
        ["acme", "deleteRecipient"],
    ]
    run("purge", "--tokens-expired-for", "1d")
    assert [line.split()[1:3] for line in run("history")[1].splitlines()] == [
        ["acme", "createRecipient"],
        ["other", "createRecipient"],
        ["acme", "deleteRecipient"],
        ["purgeRecipients", "by"],
    ]
    assert run("history", "nobody")[0] == 1


def test_a_stored_recipient_whose_name_the_file_has_is_shown_as_refused(run, config):
    assert run("add", "acme")[0] == run("add", "other")[0] == 0
    config.write_text(CONFIG.replace("{audit:", "{recipients: [{name: Acme}], audit:"))
    assert "; refused: the configuration file has a recipient of this name\n" in run("show", "acme")[1]
    assert ["refused: " in line for line in run("list")[1].splitlines()] == [True, False]
    code, _, err = run("revoke", "acme")
    assert (code, "is in the configuration file" in err) == (1, True)


def test_the_history_shows_ends_as_times(run):
    run("add", "acme", "--expires", "1d")
    ends = re.findall(r"expires (\S+)", run("list")[1])
    assert (
        re.findall(r"tokenExpires=(\S+)", run("history", "acme")[1])
        == [end.rstrip(";") for end in ends]
        != []
    )


def test_a_database_that_cannot_be_read_is_named(run, tmp_path, monkeypatch):
    assert run("add", "acme")[0] == 0
    database = tmp_path / "recipients.db"
    # Root may read every file.
    monkeypatch.setattr(os, "access", lambda path, _mode: path != database)
    code, _, err = run("list")
    assert (code, err) == (
        1,
        f"delta-gateway recipient: the database cannot be used: {database} cannot be read\n",
    )


def test_a_directory_in_the_place_of_the_database_is_named(run, tmp_path):
    (tmp_path / "recipients.db").mkdir()
    for operation in ("list", "add"):
        code, _, err = run(operation, *(["acme"] if operation == "add" else []))
        assert (code, err.endswith(f"{tmp_path / 'recipients.db'} is a directory\n")) == (1, True)


def test_a_locked_database_is_one_line(run, tmp_path, monkeypatch):
    run("add", "acme")
    monkeypatch.setattr("gateway.database.engine.BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(tmp_path / "recipients.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for operation, *arguments in (["list"], ["show", "acme"], ["rotate", "acme"], ["delete", "acme"]):
            code, out, err = run(operation, *arguments)
            assert (code, out) == (1, "")
            assert err == (
                "delta-gateway recipient: the database cannot be used: "
                "it is locked by another program; try again\n"
            )
    (tmp_path / "recipients.db").write_bytes(b"no database" * 100)
    code, _, err = run("list")
    assert (code, err.count("\n")) == (1, 1)
    assert "cannot be used" in err


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (["list"], 0),
        (["show", "x"], 1),
        (["rotate", "x"], 1),
        (["revoke", "x"], 1),
        (["grant", "x", "logs"], 1),
    ],
)
def test_only_an_addition_makes_the_database(run, tmp_path, operation, code):
    done, out, err = run(*operation)
    assert (done, out) == (code, "")
    assert "there is no database of recipients. If there was one, put it back" in err
    assert not (tmp_path / "recipients.db").exists()


@pytest.mark.parametrize(
    ("operation", "bad"),
    [
        *zip(
            [
                ["add", "BAD"],
                ["add", "new", "--share", "BAD", "--allow-absent"],
                ["add", "new", "--comment", "BAD"],
                ["add", "new", "--allow", "BAD"],
                ["add", "new", "--allow", "fe80::1%BAD"],
                ["grant", "acme", "BAD", "--allow-absent"],
                ["grant", "acme", "logs", "--allow", "BAD"],
                ["grant", "BAD", "logs"],
                ["revoke", "acme", "--share", "BAD"],
                ["revoke", "BAD"],
                ["rotate", "BAD"],
                ["delete", "BAD"],
                ["show", "BAD"],
            ],
            cycle(["\udcff", "a\u0085b", "a\x1bb"]),
            strict=False,
        )
    ],
)
def test_text_that_cannot_be_shown_is_refused_in_one_line(run, operation, bad):
    run("add", "acme")
    before = run("list")
    code, out, err = run(*(word.replace("BAD", bad) for word in operation))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert run("list") == before


def test_a_profile_with_a_name_that_is_not_utf_8_is_written(run, tmp_path):
    path = tmp_path / "\udcff.share"
    code, out, _ = run("add", "acme", "--profile", path)
    assert (code, "\\udcff.share holds the profile" in out, path.exists()) == (0, True, True)


def test_to_look_changes_no_file(run, tmp_path):
    run("add", "acme")
    database = tmp_path / "recipients.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    before = database.read_bytes()
    for looking in (["list"], ["show", "acme"]):
        code, out, _ = run(*looking)
        assert (code, out.startswith("acme: ")) == (0, True)
    assert database.read_bytes() == before
    database.write_bytes(b"")
    for looking in (["list"], ["show", "acme"]):
        code, _, err = run(*looking)
        assert (code, "is empty" in err, err.count("\n")) == (1, True, 1)
    assert database.read_bytes() == b""


def test_the_actor_is_the_user_of_the_process(run, monkeypatch):
    monkeypatch.setenv("LOGNAME", "somebody\nelse")
    run("add", "acme")
    assert f" by cli:{pwd.getpwuid(os.getuid()).pw_name} " in run("show", "acme")[1]
    named = pwd.struct_passwd(("a\nb\x1b", "", 0, 0, "", "", ""))
    monkeypatch.setattr("pwd.getpwuid", lambda _number: named)
    run("rotate", "acme")
    assert r" by cli:a\nb\x1b " in run("show", "acme")[1]


OIDC = """
version: 1
shares: [{name: sales}]
gateway:
  publicUrl: https://share.example.com
  oidc: {issuers: [{issuer: "https://idp.example.com"}]}
"""
POLICY = ["--issuer", "https://idp.example.com", "--subject", "acme-app", "--audience", "sharing"]


def test_a_recipient_of_an_identity_provider_gets_a_profile_to_complete(run, config, tmp_path):
    config.write_text(OIDC)
    profile = tmp_path / "acme.share"
    code, out, err = run(
        *(
            "add",
            "acme",
            "--share",
            "sales",
            "--oidc",
            *POLICY,
            "--subject-claim",
            "azp",
            "--claim",
            "tid=t1",
        ),
        *("--token-endpoint", "https://idp.example.com/token", "--scope", "sharing", "--profile", profile),
    )
    assert (code, err) == (0, "")
    assert "who completes it" in out
    written = json.loads(profile.read_text())
    assert written["shareCredentialsVersion"] == 2
    assert (written["type"], written["scope"]) == ("oauth_client_credentials", "sharing")
    assert written["endpoint"] == "https://share.example.com/delta-sharing"
    assert written["tokenEndpoint"] == "https://idp.example.com/token"
    assert written["clientId"]
    assert written["clientSecret"].startswith("<")
    text = "policy default: issuer https://idp.example.com, azp acme-app, audiences sharing, tid t1"
    assert f"tokens: none alive; {text}" in run("list")[1]
    assert run("policy", "add", "acme", *POLICY, "--policy", "second")[0] == 0
    assert run("policy", "list", "acme")[1].count("acme: policy ") == 2
    code, _, err = run("revoke", "acme")
    assert (code, "accepted on by the policies of the recipient" in err) == (0, True)
    assert run("revoke", "acme", "--share", "sales")[2] == ""
    assert "second" in run("policy", "remove", "acme")[1]
    assert run("policy", "remove", "acme", "--policy", "second")[1] == "acme has no policy\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["policy", "add", "acme"], "a policy needs --issuer, --subject, --audience"),
        (["policy", "add", "acme", *POLICY, "--issuer", "https://other"], "is not in gateway.oidc.issuers"),
        (["policy", "add", "acme", *POLICY, "--policy", "A"], "lower-case letters, digits"),
        (["policy", "add", "nobody", *POLICY], "no recipient 'nobody'"),
        (["policy", "remove", "acme"], "has no policy 'default'"),
        (["add", "new", "--oidc"], "a policy needs"),
        (["add", "new", *POLICY], "a policy is for a recipient with --oidc"),
        (["add", "new", "--oidc", *POLICY, "--expires", "1d"], "--expires is for tokens of this server"),
    ],
)
def test_a_policy_that_is_refused_is_explained_and_changes_nothing(run, config, arguments, message):
    config.write_text(OIDC)
    run("add", "acme")
    before = run("list")
    code, _, err = run(*arguments)
    assert (code, run("list")) == (1, before)
    assert message in err


@pytest.fixture
def tables(config, tmp_path):
    """A table that is partitioned by `p`, one without partitions, and one without a log."""
    for name, columns in (("parted", ["p"]), ("plain", [])):
        log = tmp_path / name / "_delta_log"
        log.mkdir(parents=True)
        fields = [{"name": n, "type": "string", "nullable": True, "metadata": {}} for n in ("p", "x")]
        metadata = {
            "id": name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": columns,
            "configuration": {},
        }
        actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
        (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    entries = [{"name": name, "location": str(tmp_path / name)} for name in ("parted", "plain", "absent")]
    share = {"name": "sales", "schemas": [{"name": "d", "tables": entries}]}
    config.write_text(json.dumps({"version": 1, "shares": [share, {"name": "a.b"}]}))


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["sales.d.plain", "--where", "p = 'a'"], 1, "sales.d.plain: column 'p' is no partition column"),
        (["sales.d.parted", "--where", "q = 'a'"], 1, "no one column is named 'q'"),
        (["sales.d.parted", "--where", "p ="], 1, "the condition ends too early"),
        (["sales.d.parted", "--where", "p = recipient.x"], 1, "the recipient has no property 'x'"),
        (["news.d", "--where", "p = 'a'"], 1, "share 'news' is not in the configuration"),
        (["sales.d.parted", "--allow", "192.0.2.1"], 1, "parts of shares and networks are two commands"),
        (["--where", "p = 'a'"], 1, "name shares"),
        (
            ["sales", "--where", "p = 'a'"],
            0,
            "sales.d.plain: column 'p' is no partition column; they are refused",
        ),
        (["sales.d.absent", "--where", "p = 'a'"], 0, "sales.d.absent is not checked, it cannot be read"),
        (["sales.d.other", "--where", "p = 'a'"], 0, "no share lists a table that sales.d.other is for"),
        (["news.d", "--where", "p = 'a'", "--allow-absent"], 0, "no share lists a table that news.d is for"),
        (["sales.d.partde"], 0, "no share lists sales.d.partde: look at its spelling"),
        (["sales.e"], 0, "no share lists sales.e: look at its spelling"),
    ],
)
def test_a_condition_is_compared_with_its_tables_when_it_is_given(tables, run, arguments, code, reason):
    assert run("add", "acme")[0] == 0
    found, _, err = run("grant", "acme", *arguments)
    assert (found, reason in err) == (code, True), err
    assert ("shares none;" in run("show", "acme")[1]) is (code == 1)


def test_a_listed_part_is_granted_without_a_warning(tables, run):
    assert run("add", "acme")[0] == 0
    for place in ("sales.d", "sales.D.parted"):
        code, _, err = run("grant", "acme", place)
        assert (code, "warning" in err) == (0, False), err


def test_a_condition_beside_a_whole_share_is_said_to_hide_nothing(tables, run):
    assert run("add", "acme", "--share", "sales")[0] == 0
    code, _, err = run("grant", "acme", "sales.d.parted", "--where", "p = 'a'")
    assert (code, "the share is granted as a whole, too" in err) == (0, True)


def test_shares_of_the_database_are_granted_as_those_of_the_configuration(tables, config, run, tmp_path):
    for arguments in (
        ("share", "add", "b.c"),
        ("share", "add", "s"),
        ("table", "add", "s.d.parted", str(tmp_path / "parted")),
        ("table", "add", "s.d.plain", str(tmp_path / "plain")),
    ):
        assert main([*arguments, "-c", str(config)]) == 0
    assert run("add", "acme")[0] == 0
    assert "shares b.c;" in run("grant", "acme", "b.c")[1]
    code, _, err = run("grant", "acme", "s.d.plain", "--where", "p = 'a'")
    assert (code, "s.d.plain: column 'p' is no partition column" in err) == (1, True)
    assert run("grant", "acme", "s.d.parted", "--where", "p = 'a'")[::2] == (0, "")
    assert "shares s.d.parted where p = 'a';" in run("revoke", "acme", "--share", "b.c")[1]


def test_a_whole_share_stands_in_backticks_as_a_part_does(run):
    assert run("add", "acme")[0] == 0
    assert "shares new.share;" in run("grant", "acme", "`new.share`", "--allow-absent")[1]
    assert "shares none;" in run("revoke", "acme", "--share", "`new.share`")[1]
    assert "share 'New.share' is not in the configuration" in run("grant", "acme", "`New.share`")[2]


def test_a_condition_obeys_no_terminal_and_begins_no_line_of_the_history(tables, run):
    assert run("add", "acme")[0] == 0
    assert run("grant", "acme", "sales.d.parted", "--where", "p =\n'a\x1b[31m'")[0] == 0
    for operation in ("history", "show"):
        out = run(operation, "acme")[1]
        assert "granted=sales.d.parted where p =\\n'a\\x1b[31m'" in out
        assert "\x1b" not in out


def test_a_claim_that_is_given_twice_is_refused(run):
    assert run("add", "acme")[0] == 0
    policy = ("--issuer", "i", "--subject", "s", "--audience", "a", "--allow-absent")
    code, _, err = run("policy", "add", "acme", *policy, "--claim", "scp=a", "--claim", "scp=b")
    assert (code, "a claim is given twice" in err) == (1, True)
    assert run("policy", "list", "acme")[1] == "acme has no policy\n"
    # A recipient with a bearer token would not be restricted by it.
    code, _, err = run("add", "beta", "--claim", "scp=a")
    assert (code, "a policy is for a recipient with --oidc" in err) == (1, True)


def test_what_is_taken_back_and_stays_readable_is_said_until_all_parts_are_taken(run):
    run("add", "acme", "--share", "sales")
    run("grant", "acme", "sales.p.ints")
    code, _, err = run("revoke", "acme", "--share", "sales")
    assert (code, "may still be read by the grant sales.p.ints" in err) == (0, True)
    code, out, err = run("revoke", "acme", "--share", "sales", "--all-parts")
    assert (code, "shares none" in out, "still" in err) == (0, True, False)
    assert run("revoke", "acme", "--share", "sales.p", "--all-parts")[0] == 1
    assert run("revoke", "acme", "--all-parts")[0] == 1
