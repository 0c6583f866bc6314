"""Files of earlier releases in this one: configuration, recipients' database, sealed tokens, columns.

Each release has a directory that `tests/support/release_files.py` has written, and that does not change. The
present release writes its own for the run: what it will write at its tag is read as well. The last tagged
release is built from its tag and writes its files; DELTA_GATEWAY_UPGRADE_FROM names another commit.
"""

import json
import logging
import shutil

import pytest
from support import release_files, skips
from support.release_files import PAGE, end, fix_times, ids, query, serving, variables
from support.waiting import wait_until

from gateway.config import load

PRESENT, LAST = "present", "last"
BUILD_SECONDS = 1800
RELEASES = [path.parent.name for path in sorted(release_files.FIXTURES.glob("*/share.yaml"))]


@pytest.fixture(
    scope="module",
    params=[*RELEASES, PRESENT, pytest.param(LAST, marks=pytest.mark.timeout(BUILD_SECONDS))],
)
def release(request, tmp_path_factory):
    """A copy of a release's files, with the times that a copy does not keep."""
    directory = tmp_path_factory.mktemp("release") / request.param
    if request.param == PRESENT:
        release_files.write(directory)
        return directory
    if request.param == LAST:
        if (commit := release_files.last_release()) is None:
            pytest.skip(f"{skips.NOTHING_RELEASED}: what this commit writes stands for the first release")
        release_files.write_by(commit, directory)
        return directory
    shutil.copytree(release_files.FIXTURES / request.param, directory)
    fix_times(directory / "table")
    return directory


def state_of(release, directory):
    """The state of a server of a release: its database and its columns."""
    shutil.copy(release / "recipients.db", directory)
    shutil.copytree(release / "columns", directory / "columns")
    (directory / "columns").chmod(0o700)
    for columns in (directory / "columns").iterdir():
        columns.chmod(0o600)
    return directory


@pytest.fixture(scope="module")
def state(release, tmp_path_factory):
    return state_of(release, tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="module")
def answers(release):
    return json.loads((release / "answers.json").read_text())


@pytest.fixture(scope="module")
def gateway(release, state, answers):
    with serving(release, state, release / "table", answers["bearerToken"]) as gateway:
        yield gateway


def test_the_configuration_is_read_without_a_warning(release, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        config = load(release / "share.yaml", variables(tmp_path, release / "table", 8080))
    assert caplog.text == ""
    assert [share.name for share in config.shares] == ["sales", "stock"]


def test_recipients_of_the_database_keep_their_tokens_and_grants(gateway):
    shares = gateway.request("GET", "/shares").json["items"]
    assert [share["name"] for share in shares] == ["sales", "stock"]
    assert gateway.request("GET", "/shares", token="unknown").status == 401


def test_a_new_recipient_can_be_added_to_the_database(gateway, release, state, monkeypatch):
    for name, value in variables(state, release / "table", gateway.port).items():
        monkeypatch.setenv(name, value)
    profile = state / "carol.share"
    release_files.run_command(
        "recipient", "add", "carol", "-c", release / "share.yaml", "--share", "sales", "--profile", profile
    )
    token = json.loads(profile.read_text())["bearerToken"]
    wait_until(lambda: gateway.request("GET", "/shares", token=token).status == 200)


def test_an_answer_has_the_same_files_and_its_page_token_continues_it(gateway, answers):
    assert ids(query(gateway)) == answers["ids"]
    assert ids(query(gateway, maxFiles=PAGE)) == answers["firstPage"]
    rest = query(gateway, maxFiles=1000, pageToken=answers["pageToken"])
    assert [*answers["firstPage"], *ids(rest)] == answers["ids"]


def test_a_refresh_token_renews_the_urls_of_the_same_files(gateway, answers):
    refreshed = query(gateway, refreshToken=answers["refreshToken"])
    assert ids(refreshed) == answers["ids"]
    assert end(refreshed)["minUrlExpirationTimestamp"] > 0


def test_the_token_of_a_list_continues_it(gateway, answers):
    page = gateway.request("GET", f"/shares?maxResults=9&pageToken={answers['sharesPageToken']}").json
    assert [*answers["firstShares"], *(share["name"] for share in page["items"])] == ["sales", "stock"]
