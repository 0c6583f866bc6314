"""Credentials that are renewed in time, by one thread, and used until they end."""

import threading
import traceback
from datetime import UTC, datetime, timedelta

import pytest
from tools import ROOT

from gateway import _native
from gateway.config import Secret
from gateway.storage.aws.credentials import S3Credentials
from gateway.storage.credentials import CredentialsFailed, CredentialsUnavailable
from gateway.storage.refreshing_credentials import REFUSED_SECONDS, RefreshingCredentials

HOUR = 3600.0
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
GIVEN_AGAIN_SECONDS = 300
ALERTS = ROOT / "gateway" / "telemetry" / "dashboards" / "alerts.yaml"


class Lender:
    """Lends keys for an hour, by a clock that the test turns."""

    def __init__(self) -> None:
        self.now_seconds = EPOCH.timestamp()
        self.requests = 0
        self.lends = True
        self.lasting = False

    def ask(self) -> S3Credentials:
        self.requests += 1
        if not self.lends:
            raise CredentialsUnavailable("the service is away", lasting=self.lasting)
        expires = datetime.fromtimestamp(self.now_seconds + HOUR, UTC)
        return S3Credentials(Secret(f"key-{self.requests}"), Secret("s"), Secret("t"), expires)


@pytest.fixture
def lender() -> Lender:
    return Lender()


@pytest.fixture
def keys(lender: Lender) -> RefreshingCredentials:
    return RefreshingCredentials(lender.ask, now_seconds=lambda: lender.now_seconds)


def test_credentials_are_renewed_when_half_of_their_time_is_over(
    keys: RefreshingCredentials, lender: Lender
) -> None:
    assert not keys.is_valid
    first = keys.get()
    lender.now_seconds += HOUR / 2 - 1
    assert keys.is_valid
    assert keys.get() is first
    lender.now_seconds += 2
    assert not keys.is_valid
    assert keys.get().access_key_id == Secret("key-2")
    assert lender.requests == 2


def test_no_alert_about_the_end_of_keys_that_are_given_again_until_shortly_before_it(lender: Lender) -> None:
    """As azure-identity and the metadata server of Google give them."""
    lent: list[S3Credentials] = []

    def again() -> S3Credentials:
        if not lent or left_seconds(lent[-1]) <= GIVEN_AGAIN_SECONDS:
            lent.append(lender.ask())
        return lent[-1]

    def left_seconds(keys: S3Credentials) -> float:
        assert keys.expires is not None
        return keys.expires.timestamp() - lender.now_seconds

    keys = RefreshingCredentials(again, now_seconds=lambda: lender.now_seconds)
    expressions = [rule for rule in ALERTS.read_text().splitlines() if "credentials_expire" in rule]
    least_seconds = float(expressions[0].rpartition("<")[2])
    for _ in range(4 * int(HOUR)):
        assert left_seconds(keys.get()) > least_seconds
        lender.now_seconds += 1
    assert len(lent) == 5


def test_keys_that_cannot_be_renewed_are_used_until_they_end(
    keys: RefreshingCredentials, lender: Lender
) -> None:
    first = keys.get()
    lender.lends = False
    lender.now_seconds += HOUR / 2 + 1
    assert keys.get() is first
    assert keys.is_valid, "not every request reaches the service again"
    lender.now_seconds += HOUR / 2
    with pytest.raises(_native.StorageUnavailable) as refused:
        keys.get()
    assert refused.value.detail == "the service is away"
    requests = lender.requests
    with pytest.raises(_native.StorageUnavailable):
        keys.get()
    assert lender.requests == requests, "a service that refused is left alone for a moment"
    lender.lends = True
    lender.now_seconds += 10
    assert keys.get() is not first


def test_an_error_of_any_kind_is_one_of_the_service_without_its_text(
    lender: Lender, caplog: pytest.LogCaptureFixture
) -> None:
    answered = "text of an answer"

    def ask() -> S3Credentials:
        if lender.lends:
            return lender.ask()
        lender.requests += 1
        # google-auth raises it for a page of HTML.
        raise TypeError(answered)

    keys = RefreshingCredentials(ask, now_seconds=lambda: lender.now_seconds)
    lender.lends = False
    for _ in range(2):
        with pytest.raises(CredentialsFailed) as failed:
            keys.get()
        assert failed.value.detail == "no credentials in the answer (TypeError)"
        assert answered not in "".join(traceback.format_exception(failed.value))
    assert lender.requests == 1, "a service that failed is left alone for a moment"
    lender.lends = True
    lender.now_seconds += REFUSED_SECONDS
    first = keys.get()
    lender.lends = False
    lender.now_seconds += HOUR / 2 + 1
    assert keys.get() is first
    assert answered not in caplog.text
    # It may be a defect.
    assert "raise TypeError(answered)" in caplog.text


def test_a_machine_without_a_role_differs_from_a_service_that_is_down(
    keys: RefreshingCredentials, lender: Lender
) -> None:
    lender.lends, lender.lasting = False, True
    with pytest.raises(_native.StorageDenied):
        keys.get()


def test_a_clock_that_steps_back_neither_expires_keys_nor_renews_them_forever(
    keys: RefreshingCredentials, lender: Lender
) -> None:
    first = keys.get()
    lender.now_seconds -= 10 * HOUR
    second = keys.get()
    assert second is not first
    assert keys.get() is second
    assert lender.requests == 2
    lender.lends = False
    lender.now_seconds -= 10 * HOUR
    assert keys.get() is second
    assert keys.is_valid, "not every request reaches the service again"
    lender.lends = True
    lender.now_seconds += 30 * HOUR
    assert keys.get() is not second


@pytest.mark.parametrize("is_of_a_reload", [False, True])
def test_keys_requested_by_a_clock_that_was_ahead_are_renewed_before_they_end(is_of_a_reload: bool) -> None:
    offset_seconds, now_seconds = 8 * HOUR, EPOCH.timestamp()

    def ask() -> S3Credentials:
        # The service's own clock is right.
        ends = datetime.fromtimestamp(now_seconds + 6 * HOUR, UTC)
        return S3Credentials(Secret("a"), Secret("b"), Secret("t"), ends)

    keys = RefreshingCredentials(ask, now_seconds=lambda: now_seconds + offset_seconds)
    keys.get()
    offset_seconds = 0.0
    if is_of_a_reload:
        keys = RefreshingCredentials(ask, now_seconds=lambda: now_seconds, previous=keys)
    for _ in range(24):
        now_seconds += HOUR / 2
        keys.get()
        assert keys.unexpired() is not None


def test_expired_credentials_are_requested_at_a_limited_rate(lender: Lender) -> None:
    ended = S3Credentials(Secret("a"), Secret("b"), Secret("t"), EPOCH - timedelta(hours=1))

    def ask() -> S3Credentials:
        lender.requests += 1
        return ended

    keys = RefreshingCredentials(ask, now_seconds=lambda: lender.now_seconds)
    for _ in range(10):
        assert keys.get() is ended
        lender.now_seconds += 1
    assert lender.requests == 2


def test_many_threads_ask_once(keys: RefreshingCredentials, lender: Lender) -> None:
    gate, found = threading.Barrier(16), []

    def ask() -> None:
        gate.wait()
        found.append(keys.get())

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    assert lender.requests == 1


def test_a_service_that_hangs_is_asked_once_for_all_callers(lender: Lender) -> None:
    asked, answers, failed = threading.Event(), threading.Event(), []

    def ask() -> S3Credentials:
        lender.requests += 1
        asked.set()
        assert answers.wait(30)
        lender.now_seconds += 25
        raise CredentialsUnavailable("the service hangs")

    keys = RefreshingCredentials(ask, now_seconds=lambda: lender.now_seconds)

    def get() -> None:
        with pytest.raises(CredentialsFailed):
            keys.get()
        failed.append(True)

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert asked.wait(30)
    answers.set()
    for thread in threads:
        thread.join()
    assert (len(failed), lender.requests) == (8, 1)
    # The next request is under way: others fail at once.
    lender.now_seconds += REFUSED_SECONDS
    asked.clear()
    answers.clear()
    keys.start()
    assert asked.wait(30)
    get()
    assert lender.requests == 2
    answers.set()


def test_an_answer_that_never_ends_holds_one_thread_and_no_caller(
    lender: Lender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.storage.refreshing_credentials.REQUEST_SECONDS", 0.01)
    answers = threading.Event()

    def ask() -> S3Credentials:
        received = lender.ask()
        assert answers.wait(30)
        return received

    keys = RefreshingCredentials(ask, now_seconds=lambda: lender.now_seconds)
    for _ in range(3):
        with pytest.raises(CredentialsFailed) as failed:
            keys.get()
        assert failed.value.detail == "the service has not answered within 0 seconds"
        lender.now_seconds += REFUSED_SECONDS
    monkeypatch.undo()
    answers.set()
    assert keys.get().access_key_id == Secret("key-1")
    assert lender.requests == 1


def test_credentials_that_live_are_returned_while_another_thread_renews_them(
    lender: Lender,
) -> None:
    asked, answers = threading.Event(), threading.Event()
    keys = RefreshingCredentials(lender.ask, now_seconds=lambda: lender.now_seconds)
    first = keys.get()
    lender.now_seconds += HOUR / 2 + 1

    def ask() -> S3Credentials:
        asked.set()
        assert answers.wait(30)
        return lender.ask()

    keys._request = ask
    keys.start()
    assert asked.wait(30)
    assert keys.get() is first
    assert keys.unexpired() is first
    lender.now_seconds += HOUR
    assert keys.unexpired() is None
    answers.set()
    assert keys.get() is not first
