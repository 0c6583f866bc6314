"""`delta-gateway init`: what it finds, writes and refuses; and the terminal's questions and signals."""

import errno
import json
import os
import pty
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
import yaml
from support.nightly import at_night
from support.processes import gateway_command, package_environment
from support.waiting import wait_until
from tables.demo import ROWS

from gateway import _native
from gateway.__main__ import main
from gateway.cli import first_share, init, share_files
from gateway.cli.new_file import NewFile
from gateway.config import Location, load
from gateway.config.database import DatabasePlace
from gateway.governance.recipient_store import RecipientDatabase
from gateway.governance.stored_recipients import read_once
from gateway.tables.search import FoundTable, Search, find_tables
from gateway.times import epoch_ms

WRITTEN = {"share.yaml", "share-token.key", "recipients.db", "alice.share"}
UNPRIVILEGED = 65534
QUESTIONS = [
    "Where are the tables",
    "The name of the share",
    "Share older versions",
    "The name of the first recipient",
    "Serve the",
]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `init` in an empty directory and gives its exit code, standard output and standard error."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in init.ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(["init", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_a_bucket_without_credentials_is_one_error_with_its_reason(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(Path.cwd()))
    code, out, err = run("s3://my-bucket/x", "--recipient", "alice")
    assert (code, out, caplog.messages) == (1, "", [])
    assert err.startswith("delta-gateway: s3://my-bucket/x cannot be read: ")
    assert "the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in err
    assert written() == set()


def written() -> set[str]:
    return {path.name for path in Path().iterdir()}


def shared() -> list[str]:
    shares = load("share.yaml").shares
    return [f"{s.name}.{c.name}.{t.name}" for s in shares for c in s.schemas for t in c.tables]


def test_a_directory_of_tables_becomes_a_share_that_check_passes(
    run: Run, demo_tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(demo_tables, "--recipient", "alice", "--share", "sales")
    assert (code, err) == (0, "")
    assert written() == WRITTEN
    assert shared() == [f"sales.default.{name}" for name in sorted(ROWS)]
    assert {oct(Path(name).stat().st_mode & 0o077) for name in WRITTEN} == {"0o0"}
    token = json.loads(Path("alice.share").read_text())["bearerToken"]
    assert token not in out
    assert "pandas:\n# pip install delta-sharing==" in out
    assert "Spark:" in out
    assert "curl:" in out
    assert main(["check", "-c", "share.yaml"]) == 0
    checked = capsys.readouterr()
    assert "3 of 3 tables can be read." in checked.out
    assert checked.err == ""


def test_a_port_that_another_program_has_is_an_error_before_anything_is_written(
    run: Run, demo_tables: Path
) -> None:
    with socket.create_server(("localhost", 0)) as other:
        port = str(other.getsockname()[1])
        code, _, err = run(demo_tables, "--recipient", "alice", "--port", port, "--serve")
        assert (code, "another program listens there" in err) == (1, True)
        assert written() == set()
        assert run(demo_tables, "--recipient", "alice", "--port", port, "--no-serve")[0] == 0


def test_directories_above_a_table_are_its_schema_and_odd_names_become_legal_ones(
    run: Run, demo_tables: Path, tmp_path: Path
) -> None:
    warehouse = tmp_path / "my ${WARE}house.v2"
    copies = {
        "orders": "sales-eu.orders",
        "Zürich 1/orders.v1": "Zürich_1.orders_v1",
        "Zu\u0308rich 1/orders v1": "Zürich_1.orders_v1_2",
        "a/b/orders": "a_b.orders",
        "a/b/c/too/deep": None,
        ".hidden/orders": None,
        "_staging/orders": None,
        "day=2026-01-01/orders": None,
    }
    for place, name in copies.items():
        shutil.copytree(demo_tables / "orders", warehouse / place, dirs_exist_ok=True) if name else (
            warehouse / place / "_delta_log"
        ).mkdir(parents=True)
    # A directory inside of a table is not looked into.
    shutil.copytree(demo_tables / "orders", warehouse / "orders" / "inner")
    code, out, err = run(warehouse, "--recipient", "alice")
    assert (code, err) == (0, ""), out
    assert sorted(shared()) == sorted(
        [
            "my_WARE_house_v2.default.orders",
            "my_WARE_house_v2.Zürich_1.orders_v1",
            "my_WARE_house_v2.Zürich_1.orders_v1_2",
            "my_WARE_house_v2.a_b.orders",
        ]
    )
    assert main(["check", "-c", "share.yaml"]) == 0


@pytest.mark.parametrize("place", ["orders", "./orders", "../up/orders", "link/orders"])
def test_a_table_by_a_relative_path_is_shared_by_its_absolute_one(
    run: Run, demo_tables: Path, place: str
) -> None:
    Path("../up").mkdir()
    Path("link").symlink_to("../up")
    for root in (Path(), Path("../up")):
        shutil.copytree(demo_tables / "orders", root / "orders")
    assert run(place, "--recipient", "alice")[0] == 0
    (name,) = shared()
    parent = Path(place).parent.name or "here"
    assert name == f"{parent}.default.orders"
    (table,) = load("share.yaml").shares[0].schemas[0].tables
    assert Path(table.location.key).is_absolute()
    assert Path(table.location.key).samefile(place)


@pytest.mark.parametrize("location", ["az://lake/wh", "abfss://lake@acct.dfs.core.window.net/wh"])
def test_a_location_in_no_known_account_of_azure_is_refused_with_the_form_that_names_one(
    run: Run, location: str
) -> None:
    code, _, err = run(location, "--recipient", "alice")
    assert code == 1
    assert "is in no known account; give abfss://lake@account.dfs.core.windows.net/...\n" in err
    assert "configuration" not in err
    assert written() == set()


def test_the_public_url_is_in_the_profile_and_in_the_commands(run: Run, demo_tables: Path) -> None:
    url = "https://sharing.example.com"
    assert run(demo_tables, "--recipient", "alice", "--public-url", url)[0] == 0
    assert json.loads(Path("alice.share").read_text())["endpoint"] == f"{url}/delta-sharing"
    assert load("share.yaml").host == "0.0.0.0"


@pytest.mark.processes
def test_the_printed_curl_command_sends_the_token_of_the_profile(
    run: Run, demo_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a 'b").mkdir()
    monkeypatch.chdir("a 'b")
    _, out, _ = run(demo_tables, "--recipient", "alice")
    command = out.split("curl:\n")[1].splitlines()[0].strip()
    printed = subprocess.run(
        ["bash", "-c", f"curl() {{ printf '%s\\n' \"$@\"; }}; {command}"],
        capture_output=True,
        text=True,
        check=True,
    )
    profile = json.loads(Path("alice.share").read_text())
    words = printed.stdout.splitlines()
    assert f"Authorization: Bearer {profile['bearerToken']}" in words
    assert words[-1].startswith(profile["endpoint"])


# Refusals


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["TABLES"], "no terminal to ask on: give --recipient NAME"),
        (["--recipient", "alice"], "no terminal to ask on: give LOCATION"),
        ([], "no terminal to ask on: give LOCATION and --recipient NAME"),
        (["nowhere", "--recipient", "alice"], "nowhere is no directory; give the directory of a Delta table"),
        ([".", "--recipient", "alice"], "no Delta table (a directory with _delta_log) is at"),
        (["ftp://bucket/x", "--recipient", "alice"], "'ftp://bucket/x' is not a location; accepted: s3://"),
        (["TABLES", "--recipient", "a b"], "recipient name: expected 1 to 255 characters without blanks"),
        (["TABLES", "--recipient", "a/b"], "recipient name: expected 1 to 255 characters without blanks"),
        (["TABLES", "--recipient", "a" * 255], "File name too long"),
        (["TABLES", "--recipient", "alice", "--share", "a.b"], "'a.b' cannot name a share for every client"),
        (["TABLES", "--recipient", "alice", "--share", "a/b"], "cannot name a share"),
        (["TABLES", "--recipient", "alice", "--share", "a b"], "cannot name a share"),
        (["TABLES", "--recipient", "alice", "--share", "x" * 256], "cannot name a share"),
        (["TABLES", "--recipient", "alice", "--share", ""], "cannot name a share"),
        (["", "--recipient", "alice"], "the location is empty; '.' is the current directory"),
        (["~no-such-user/x", "--recipient", "alice"], "the home directory in '~no-such-user/x' is not known"),
        (["TABLES", "--recipient", "alice", "--port", "99999"], "port"),
        (["TABLES", "--recipient", "alice", "--port", "0"], "give the port that recipients use"),
        (["TABLES", "--recipient", "alice", "--public-url", "host"], "--public-url: 'host' is not a URL"),
        (
            ["TABLES", "--recipient", "alice", "--endpoint", "host:9"],
            "--endpoint: 'host:9' is not a URL",
        ),
        (["TABLES", "--recipient", "alice", "-c", "absent/x.yaml"], "No such file or directory"),
        (["TABLES", "--recipient", "alice", "-c", "recipients.db", "--force"], "is the recipients' database"),
        (["TABLES", "--recipient", "alice", "-c", "alice.share"], "alice.share is another file of the share"),
        (["\udcff", "--recipient", "alice"], "is not UTF-8; rename the directory"),
    ],
)
def test_a_refusal_names_what_to_do_and_leaves_no_file(
    run: Run, demo_tables: Path, arguments: list[str], words: str
) -> None:
    code, _, err = run(*(str(demo_tables) if word == "TABLES" else word for word in arguments))
    assert code == 1
    assert err.count("\n") == 1
    assert words in err
    assert written() == set()


def test_a_directory_that_cannot_be_written_is_one_line(run: Run, demo_tables: Path) -> None:
    # Also for root, unlike a directory without write permission.
    code, _, err = run(demo_tables, "--recipient", "alice", "-c", "/proc/share.yaml")
    assert (code, err.count("\n")) == (1, 1)
    assert "the configuration /proc/share.yaml cannot be written" in err
    if os.getuid() != 0:
        Path().chmod(0o500)
        code, _, err = run(demo_tables, "--recipient", "alice")
        assert (code, "Permission denied" in err) == (1, True)


def test_existing_files_stay_without_force(run: Run, demo_tables: Path) -> None:
    arguments = (demo_tables, "--recipient", "alice")
    assert run(*arguments)[0] == 0
    before = {name: Path(name).read_bytes() for name in WRITTEN}
    code, _, err = run(*arguments)
    assert (code, "share.yaml exists; --force replaces it" in err) == (1, True)
    code, _, err = run(*arguments, "-c", "other.yaml")
    assert (code, "alice.share exists; --force replaces it" in err) == (1, True)
    Path("alice.share").unlink()
    code, _, err = run(*arguments, "-c", "other.yaml")
    assert (code, "recipient alice is in recipients.db already" in err) == (1, True)
    assert {name: Path(name).read_bytes() for name in WRITTEN - {"alice.share"}} == {
        name: before[name] for name in WRITTEN - {"alice.share"}
    }
    assert written() == WRITTEN - {"alice.share"}


def test_two_commands_at_once_write_one_after_the_other(
    run: Run, demo_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, first, before = share_files.fcntl.flock, os.open(".", os.O_RDONLY), list[set[str]]()

    def locked(descriptor: int, operation: int) -> None:
        with pytest.raises(BlockingIOError):
            lock(descriptor, operation | share_files.fcntl.LOCK_NB)
        before.append(written())
        # The other command ends.
        Path("share-token.key").write_text("the key of the other\n")
        os.close(first)
        lock(descriptor, operation)

    lock(first, share_files.fcntl.LOCK_EX)
    monkeypatch.setattr(share_files.fcntl, "flock", locked)
    assert run(demo_tables, "--recipient", "alice")[0] == 0
    assert before == [set()]
    assert Path("share-token.key").read_text() == "the key of the other\n"


def test_a_signal_ends_the_wait_for_another_command(
    run: Run, demo_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_files.fcntl, "flock", lambda *_: signal.raise_signal(signal.SIGINT))
    # Commands in the background of a shell ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert run(demo_tables, "--recipient", "alice")[0] == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert written() == set()


def test_a_file_of_one_name_is_not_there_where_it_cannot_be_moved(
    run: Run, demo_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int) -> Callable[..., None]:
        def failing(*_arguments: object) -> None:
            raise OSError(number, os.strerror(number))

        return failing

    monkeypatch.setattr(os, "link", fail(errno.EPERM))
    monkeypatch.setattr(Path, "replace", fail(errno.EIO))
    code, _, err = run(demo_tables, "--recipient", "alice")
    assert (code, "cannot be written: Input/output error" in err) == (1, True)
    assert written() == set()


def test_force_replaces_configuration_and_token_and_keeps_the_key(run: Run, demo_tables: Path) -> None:
    assert run(demo_tables, "--recipient", "alice")[0] == 0
    key = Path("share-token.key").read_text()
    token = json.loads(Path("alice.share").read_text())["bearerToken"]
    assert run(demo_tables / "orders", "--recipient", "Alice", "--share", "new", "--force")[0] == 0
    assert shared() == ["new.default.orders"]
    assert Path("share-token.key").read_text() == key
    assert json.loads(Path("Alice.share").read_text())["bearerToken"] != token
    with closing(RecipientDatabase(DatabasePlace(Path("recipients.db")), now_ms=lambda: 2**41)) as database:
        (record,) = database.list()
        assert "new" in record.shares
        assert len([one for one in record.tokens if one.live(epoch_ms())]) == 1


@pytest.mark.parametrize("option", ["--history", "--no-history", None])
def test_it_says_whether_the_history_is_shared_and_which_tables_have_a_feed(
    run: Run, demo_tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str | None
) -> None:
    shutil.copytree(demo_tables / "cities", tmp_path / "w" / "plain")
    shutil.copytree(demo_tables / "orders", tmp_path / "w" / "feed")
    code, out, _ = run(tmp_path / "w", "--recipient", "alice", *([option] if option else []))
    assert code == 0
    assert ("The history is shared: " in out) == (option == "--history")
    assert ("The history is not shared: " in out) == (option != "--history")
    unshared = "With a change data feed, which is not shared: default.feed.\n"
    assert (unshared in out) == (option != "--history")
    tables = load("share.yaml").shares[0].schemas[0].tables
    assert [table.history_shared for table in tables] == [option == "--history"] * 2
    main(["check", "-c", "share.yaml"])
    named = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "change data feed" in line]
    assert named == ([] if option == "--history" else ["w.default.feed"])


def test_a_table_that_cannot_be_read_is_left_out_with_its_reason(
    run: Run, demo_tables: Path, tmp_path: Path
) -> None:
    shutil.copytree(demo_tables / "orders", tmp_path / "w" / "good")
    (tmp_path / "w" / "empty" / "_delta_log").mkdir(parents=True)
    log = tmp_path / "w" / "corrupt" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("no JSON")
    code, out, _ = run(tmp_path / "w", "--recipient", "alice")
    assert code == 0
    assert "default.empty: left out, because it cannot be read: the table has no Delta log" in out
    assert "default.corrupt: left out, because it cannot be read" in out
    assert "1 of 3 tables can be read and shared." in out
    assert shared() == ["w.default.good"]
    shutil.rmtree(tmp_path / "w" / "good")
    code, _, err = run(tmp_path / "w", "--recipient", "alice", "-c", "other.yaml")
    assert (code, "no table can be read, so there is nothing to share" in err) == (1, True)


def test_an_error_in_the_last_step_takes_all_files_back(
    run: Run, demo_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_text = NewFile.write_text

    def full(file: NewFile, text: str) -> None:
        if "bearerToken" in text:
            raise OSError(errno.ENOSPC, "No space left on device")
        written_text(file, text)

    with monkeypatch.context() as patch:
        patch.setattr(NewFile, "write_text", full)
        assert run(demo_tables, "--recipient", "alice")[0] == 1
    assert written() == set()
    assert run(demo_tables, "--recipient", "alice")[0] == 0
    before = {name: Path(name).read_bytes() for name in WRITTEN - {"recipients.db"}}
    place, (share, *_) = DatabasePlace(Path("recipients.db")), shared()[0].split(".")

    def watched(file: NewFile, text: str) -> None:
        # The token that is replaced is never that of a recipient of the new share.
        assert read_once(place).by_key["alice"].recipient.shares == {share}
        full(file, text)

    with monkeypatch.context() as patch:
        patch.setattr(NewFile, "write_text", watched)
        assert run(demo_tables, "--recipient", "alice", "--share", "other", "--force")[0] == 1
    assert {name: Path(name).read_bytes() for name in before} == before
    assert written() == WRITTEN
    with closing(RecipientDatabase(place, now_ms=lambda: 0)) as database:
        assert database.show("alice").shares == (share,)


def test_a_database_that_is_none_is_one_line_and_stays(run: Run, demo_tables: Path) -> None:
    Path("recipients.db").write_bytes(b"no database" * 100)
    code, _, err = run(demo_tables, "--recipient", "alice")
    assert (code, err.count("\n")) == (1, 1)
    assert written() == {"recipients.db"}


def test_a_search_is_bounded(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (tmp_path / "many" / str(number)).mkdir(parents=True)
    monkeypatch.setattr("gateway.tables.search.MAX_DIRECTORIES", 20)
    code, _, err = run(tmp_path / "many", "--recipient", "alice")
    assert (code, "as far as its first directories were searched" in err) == (1, True)


def test_a_directory_without_access_is_named_and_the_others_are_shared(
    run: Run, demo_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(storage: _native.Storage, location: Location) -> Search:
        if os.geteuid() != 0:
            return find_tables(storage, location)
        # Root may list every directory.
        os.seteuid(UNPRIVILEGED)
        try:
            return find_tables(storage, location)
        finally:
            os.seteuid(0)

    monkeypatch.setattr(init, "find_tables", search)
    with tempfile.TemporaryDirectory() as temporary:
        top = Path(temporary)
        top.chmod(0o755)
        shutil.copytree(demo_tables / "orders", top / "w" / "orders")
        (top / "w" / "lost+found").mkdir(mode=0)
        code, out, _ = run(top / "w", "--recipient", "alice")
        assert (code, shared()) == (0, ["w.default.orders"])
        assert f"There may be more: the search cannot list file://{top}/w/lost+found.\n" in out
        shutil.rmtree(top / "w" / "orders")
        (top / "w" / "second").mkdir(mode=0)
        code, _, err = run(top / "w", "--recipient", "alice", "-c", "other.yaml")
        assert (code, err.count("\n")) == (1, 1)
        assert err.endswith("and 1 other\n")
        (top / "w").chmod(0)
        code, _, err = run(top / "w", "--recipient", "alice", "-c", "other.yaml")
        assert (code, f"file://{top}/w cannot be read: the storage denies access" in err) == (1, True)


def test_a_link_to_a_table_is_followed_and_one_that_leads_back_is_not(
    run: Run, demo_tables: Path, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        shutil.copytree(demo_tables / "orders", tmp_path / "w" / name / "t")
    (tmp_path / "w" / "self").symlink_to(".")
    (tmp_path / "w" / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "w" / "a" / "to_b").symlink_to("../b")
    (tmp_path / "w" / "b" / "to_a").symlink_to("../a")
    (tmp_path / "w" / "latest").symlink_to("a/t")
    (tmp_path / "w" / "loop").symlink_to("loop")
    code, out, _ = run(tmp_path / "w", "--recipient", "alice")
    assert (code, f"There may be more: the search cannot list file://{tmp_path}/w/loop.\n" in out) == (
        0,
        True,
    )
    assert set(shared()) == {"w.a.t", "w.b.t", "w.a_to_b.t", "w.b_to_a.t", "w.default.latest"}


def test_a_link_to_a_missing_token_key_stays_after_an_error(run: Run, demo_tables: Path) -> None:
    Path("share-token.key").symlink_to("absent/key")
    assert run(demo_tables, "--recipient", "alice")[0] == 1
    assert Path("share-token.key").is_symlink()


def test_the_printed_command_serves_a_configuration_with_a_blank_in_its_name(
    run: Run, demo_tables: Path
) -> None:
    _, out, _ = run(demo_tables, "--recipient", "alice", "-c", "my share.yaml")
    assert shlex.split(out.splitlines()[-1]) == ["Serve:", "delta-gateway", "serve", "-c", "my share.yaml"]


def test_a_table_is_found_among_more_files_than_a_listing_reads(
    run: Run, demo_tables: Path, tmp_path: Path
) -> None:
    shutil.copytree(demo_tables / "orders", tmp_path / "w" / "table")
    for number in range(16_200):
        os.mknod(tmp_path / "w" / "table" / f"{number}.parquet")
    assert run(tmp_path / "w", "--recipient", "alice")[0] == 0
    assert shared() == ["w.default.table"]


def test_names_of_the_root_and_of_a_bucket() -> None:
    root, bucket = Location("file", "", "/"), Location("s3", "my.bucket", "")
    assert first_share.default_share(root, []) == "share"
    assert first_share.default_share(bucket, []) == "my_bucket"
    assert first_share.default_share(bucket, [FoundTable(bucket, ())]) == "share"
    table = Location("s3", "b", "warehouse/orders")
    assert first_share.default_share(table, [FoundTable(table, ())]) == "warehouse"


# On a terminal


class Terminal:
    """A process of `init` on a pseudo-terminal."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.shown = b""
        process_id, self.descriptor = pty.fork()
        if process_id == 0:
            os.chdir(directory)
            # Programs in the background of a shell ignore it, and so would their children.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            command = gateway_command("init", *arguments)
            os.execve(sys.executable, command, package_environment(TERM="dumb"))
        self.process_id = process_id

    def read(self) -> bool:
        try:
            self.shown += os.read(self.descriptor, 65536)
        except OSError:
            return False
        return True

    def wait_for(self, text: str, times: int = 1) -> None:
        while self.shown.decode().count(text) < times:
            assert self.read(), self.shown.decode()

    def type(self, text: str) -> None:
        # Python misses a signal between the question and the read, until the next key.
        wait_until(self.is_reading_or_has_ended)
        with suppress(OSError):
            os.write(self.descriptor, text.encode())

    def is_reading_or_has_ended(self) -> bool:
        stat = Path(f"/proc/{self.process_id}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] in "SZ"

    def exit_code(self) -> int:
        while self.read():
            pass
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(self.process_id, 0)[1])


@pytest.mark.processes
def test_five_questions_on_a_terminal_make_a_share(tmp_path: Path, demo_tables: Path) -> None:
    shutil.copytree(demo_tables / "orders", tmp_path / "data" / "orders")
    terminal = Terminal(tmp_path)
    answers = ["nowhere\n", "data\n", "a.b\n", "\n", "all\n", "yes\n", "no name\n", "\n", "perhaps\n", "no\n"]
    for number, answer in enumerate(answers):
        # Each question has one answer that is not accepted.
        terminal.wait_for(QUESTIONS[number // 2], times=number % 2 + 1)
        terminal.type(answer)
    assert terminal.exit_code() == 0, terminal.shown.decode()
    assert {path.name for path in tmp_path.iterdir()} == (WRITTEN - {"alice.share"}) | {"me.share", "data"}
    share = load(tmp_path / "share.yaml").shares[0]
    assert (share.name, share.schemas[0].tables[0].history_shared) == ("data", True)


@pytest.mark.processes
@pytest.mark.parametrize("key", ["\x03", *at_night("\x04")], ids=["Ctrl-C", "Ctrl-D"])
def test_an_interruption_at_a_question_leaves_nothing(tmp_path: Path, demo_tables: Path, key: str) -> None:
    terminal = Terminal(tmp_path, str(demo_tables), "--share", "sales")
    terminal.wait_for(QUESTIONS[2])
    terminal.type(key)
    # A signal just before the process waits for input is noticed at the next one.
    is_open = True
    while is_open:
        if select.select([terminal.descriptor], [], [], 2)[0]:
            is_open = terminal.read()
        else:
            terminal.type(key)
    assert terminal.exit_code() == (130 if key == "\x03" else 1)
    assert list(tmp_path.iterdir()) == []
    assert b"Traceback" not in terminal.shown


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, *at_night(signal.SIGINT)])
def test_a_signal_while_files_are_written_waits_until_all_are_there(
    tmp_path: Path, demo_tables: Path, number: signal.Signals
) -> None:
    code = f"""
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from gateway.__main__ import main
from gateway.cli.new_file import NewFile
write_text = NewFile.write_text
def interrupted(*arguments):
    os.kill(os.getpid(), {int(number)})
    write_text(*arguments)
    os.kill(os.getpid(), {int(number)})
NewFile.write_text = interrupted
sys.exit(main(["init", {str(demo_tables)!r}, "--recipient", "alice"]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=package_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode in (130, -signal.SIGTERM), ended.stderr
    assert {path.name for path in tmp_path.iterdir()} == WRITTEN
    profile = json.loads((tmp_path / "alice.share").read_text())
    assert profile["bearerToken"]
    assert yaml.safe_load((tmp_path / "share.yaml").read_text())["version"] == 1
