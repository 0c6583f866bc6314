"""The parts of the console that need no browser: sessions, lists, and what a process remembers."""

import json
from contextlib import suppress
from types import SimpleNamespace

import pytest
import yaml
from aiohttp.test_utils import make_mocked_request

from gateway.authentication.credential_table import Credential, CredentialTable, Holder
from gateway.catalog.catalog import Catalog, Recipient
from gateway.catalog.grants import Grant
from gateway.config import loads
from gateway.console.charts import HEIGHT, LEFT, RIGHT, WIDTH, charts_of
from gateway.console.inspection import _columns, facts_of, is_within, readers_of, shares_of, tables_of
from gateway.console.listing import PAGE_LENGTH, Wanted, listing
from gateway.console.protection import is_of_this_site
from gateway.console.questions import (
    MAX_COLUMNS,
    SIZE_BOUNDS,
    AskReaders,
    AskShare,
    AskShares,
    ColumnRow,
    Selection,
    TableFacts,
)
from gateway.console.sessions import (
    IDLE_SECONDS,
    LIFETIME_SECONDS,
    MAX_SESSIONS,
    Role,
    Sessions,
)
from gateway.console.share_pages import bars_of, clients_of
from gateway.console.sign_in import target_of
from gateway.errors import NotShared
from gateway.report.times import ago, is_soon, left, moment
from gateway.tables.open_table import NotCached
from gateway.telemetry.activity import (
    MAX_QUERIES,
    MAX_RECIPIENTS,
    Activity,
    LiveStream,
    RecentQuery,
    RecipientUse,
    Refused,
    add_uses,
)
from gateway.telemetry.rings import ALL, ANSWERED, REFUSED, RequestFacts, Rings

DAY_MS = 86_400_000


class Clock:
    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


def test_a_session_ends_when_it_is_idle(clock):
    sessions = Sessions(clock)
    cookie = sessions.begin("console:a", Role.VIEWER)
    clock.seconds += IDLE_SECONDS
    assert sessions.find(cookie).actor == "console:a"
    clock.seconds += IDLE_SECONDS
    assert sessions.find(cookie) is not None
    clock.seconds += IDLE_SECONDS + 1
    assert sessions.find(cookie) is None
    clock.seconds = 1000.0
    assert sessions.find(cookie) is None, "it has ended for good"


def test_a_session_in_use_ends_after_its_lifetime(clock):
    sessions = Sessions(clock)
    cookie, began = sessions.begin("console:a", Role.OPERATOR), clock.seconds
    while clock.seconds < began + LIFETIME_SECONDS:
        assert sessions.find(cookie) is not None
        clock.seconds += IDLE_SECONDS / 2
    clock.seconds += 1
    assert sessions.find(cookie) is None


def test_the_number_of_sessions_is_bounded_and_the_one_unused_longest_ends(clock):
    sessions = Sessions(clock)
    first, second = (sessions.begin(str(number), Role.VIEWER) for number in range(2))
    others = [sessions.begin("other", Role.VIEWER) for _ in range(MAX_SESSIONS - 2)]
    assert sessions.find(first) is not None
    sessions.begin("one more", Role.VIEWER)
    assert sessions.find(second) is None
    assert sessions.find(first) is not None
    assert sessions.find(others[-1]) is not None


def test_who_signs_in_again_and_again_ends_no_session_of_others(clock):
    sessions = Sessions(clock)
    operator = sessions.begin("console:operator:192.0.2.1", Role.OPERATOR)
    for number in range(2 * MAX_SESSIONS):
        sessions.begin(f"console:viewer:192.0.2.{number % 200}", Role.VIEWER)
    assert sessions.find(operator) is not None


def test_a_session_shows_no_secret(clock):
    sessions = Sessions(clock)
    cookie = sessions.begin("a", Role.OPERATOR)
    session = sessions.find(cookie)
    assert session.form_token not in repr(session)
    assert cookie not in repr(vars(sessions))


@pytest.mark.parametrize(
    ("page", "shown"), [(1, 1), (3, 3), (4, 3), (10**6, 3)], ids=["first", "last", "beyond", "far beyond"]
)
def test_a_page_of_a_list(page, shown):
    names = [f"Table {number:03}" for number in range(2 * PAGE_LENGTH + 7)]
    found = listing(Wanted("/console/shares", "", page), names, str)
    start = (shown - 1) * PAGE_LENGTH
    assert (found.page, found.pages, found.total) == (shown, 3, len(names))
    assert found.items == names[start : start + PAGE_LENGTH]
    assert (found.previous is None, found.following is None) == (shown == 1, shown == 3)


def test_a_search_ignores_case_and_stays_in_the_addresses_of_its_pages():
    names = ["Straße & co", *(f"straSSE {number}" for number in range(PAGE_LENGTH)), "other"]
    found = listing(Wanted("/console/a", "STRASSE", 1), names, str)
    assert (found.total, found.pages) == (PAGE_LENGTH + 1, 2)
    assert found.following == "/console/a?q=STRASSE&page=2"
    assert listing(Wanted("/console/a", "a&b=c#d", 2), [], str).wanted.address(2) == (
        "/console/a?q=a%26b%3Dc%23d&page=2"
    )


def test_a_second_list_of_a_page_has_its_own_filter_and_order():
    request = make_mocked_request("GET", "/console/a?only=new&sort=size&two-only=old&two-sort=size&two-q=x")
    first = Wanted.by(request, only=["new", "old"], sorts=["size"])
    second = Wanted.by(request, "two-", only=["new", "old"], sorts=["name"])
    assert first.address(2) == "/console/a?only=new&sort=size&page=2"
    assert second.address() == "/console/a?two-q=x&two-only=old#two-list"
    assert second.address(sort="name") == "/console/a?two-q=x&two-only=old&two-sort=name#two-list"


def test_tables_and_shares_are_filtered_and_sorted():
    tables = [
        {"name": "b", "location": "/data/b"},
        {"name": "C", "location": "/data/c", "historyShared": True},
    ]
    schemas = [{"name": "x", "tables": tables}, {"name": "w", "tables": tables[:1]}]
    shares = [{"name": "few"}, {"name": "many", "schemas": schemas}]
    catalog = Catalog.of(
        loads(yaml.safe_dump({"version": 1, "shares": shares, "gateway": {"anonymous": True}})).shares
    )

    def listed(only="", sort=""):
        page = tables_of(catalog, AskShare("many", Selection("", 1, only, sort))).tables
        return [f"{table.schema}.{table.name}" for table in page.items]

    assert listed(only="history") == ["x.C"]
    assert listed(only="latest", sort="schema") == ["w.b", "x.b"]
    assert listed(sort="table") == ["x.b", "w.b", "x.C"]
    assert listed(sort="history")[0] == "x.C"
    assert listed(only="directory") == []

    def found(only="", sort=""):
        return [
            share.name for share in shares_of(catalog, AskShares(Selection("", 1, only, sort))).shares.items
        ]

    assert found(only="empty") == ["few"]
    assert found(sort="tables") == found(sort="schemas") == ["many", "few"]


def test_the_recent_queries_are_bounded_and_the_last_one_comes_first():
    activity = Activity()
    for number in range(3 * MAX_QUERIES):
        activity.query_ended(RecentQuery(number, f"r{number % 2}", f"t{number % 3}", "query", 200, 0.1))
    assert [query.at_ms for query in activity.queries()] == [
        *range(3 * MAX_QUERIES - 1, 2 * MAX_QUERIES - 1, -1)
    ]
    assert {query.recipient for query in activity.queries(recipient="r1")} == {"r1"}
    assert {query.table for query in activity.queries(table="t2")} == {"t2"}


def test_recipients_are_counted_and_the_one_unused_longest_is_forgotten():
    activity = Activity()
    for at_ms, refusal in enumerate((None, "address", "limit", "address")):
        activity.request_ended("first", at_ms=at_ms, refusal=refusal, files=2, address=f"::{at_ms}")
    refused = {"address": Refused(2, 3, "::3"), "limit": Refused(1, 2, "::2")}
    assert activity.use("first") == RecipientUse(3, 4, 8, refused)
    assert activity.use("first").refusals == 3
    for number in range(MAX_RECIPIENTS):
        if number == 5:
            activity.request_ended("first", at_ms=1000, refusal=None, files=0, address="::")
        activity.request_ended(str(number), at_ms=0, refusal=None, files=0, address="::")
    assert activity.use("first").requests == 5
    assert activity.use("0") is None
    other = RecipientUse(7, 10, 20, {"limit": Refused(30, 7, "::7"), "rule": Refused(1, 1, "::1")})
    assert add_uses([RecipientUse(5, 1, 2, refused), other]) == RecipientUse(
        7, 11, 22, {**refused, "limit": Refused(31, 7, "::7"), "rule": Refused(1, 1, "::1")}
    )


def test_a_stream_is_live_until_it_ends():
    activity, stream = Activity(), LiveStream(1, "r", "s.d.t", "query")
    activity.stream_started("a", lambda: stream)
    assert activity.streams() == [stream]
    activity.stream_ended("a")
    activity.stream_ended("a")
    assert activity.streams() == []


@pytest.mark.parametrize(
    ("time_ms", "text", "soon"),
    [
        (None, "never", False),
        (0, "ended", True),
        (DAY_MS + 1, "in 1 s", True),
        (15 * DAY_MS - 1000, "in 14 days", True),
        (91 * DAY_MS - 1000, "in 90 days", False),
        (2 * DAY_MS - 1000, "in 1 day", True),
        (151 * DAY_MS, "in 5 months", False),
        (15 * DAY_MS + 1, "in 14 days", False),
        (800 * DAY_MS, "in 2 years", False),
    ],
)
def test_an_end_is_near_within_14_days(time_ms, text, soon):
    now_ms = DAY_MS - 1000 if time_ms == DAY_MS + 1 else DAY_MS
    assert left(time_ms, now_ms) == text
    assert is_soon(time_ms, DAY_MS) is soon


def test_times_in_words():
    assert ago(0, 80_000) == "1 minute ago"
    assert ago(0, 3 * DAY_MS) == "3 days ago"
    assert ago(5, 0) == "0 s ago", "clocks of processes differ"
    assert moment(10**20) == "beyond the calendar"


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("/console/shares?q=a", "/console/shares?q=a"),
        ("", "/console/"),
        ("https://evil.example/console/", "/console/"),
        ("//evil.example/console/", "/console/"),
        ("/console", "/console/"),
        ("/console/sign-out", "/console/"),
        ("/console/\\evil", "/console/"),
        ("/console/../recipients", "/console/"),
        ("/console/%2e%2e/recipients", "/console/"),
        ("/console/.%2E/recipients?q=a", "/console/"),
        ("/console/%2e", "/console/"),
        ("/console/shares/a%2eb?q=/../", "/console/shares/a%2eb?q=/../"),
        ("/console/\r\nSet-Cookie: a=b", "/console/"),
        ("/recipients", "/console/"),
        (f"/console/shares?q={'x' * 1482}", f"/console/shares?q={'x' * 1482}"),
        (f"/console/shares?q={'x' * 1483}", "/console/"),
    ],
)
def test_a_sign_in_leads_to_pages_of_the_console_only(text, target):
    assert target_of(text) == target


def facts(**changed):
    values = {
        "version": 1,
        "committed_ms": 1,
        "files": 1,
        "size_bytes": 1,
        "columns": (),
        "column_count": 0,
        "reader_features": (),
        "needs_delta_format": False,
        "change_data_feed": False,
        "checkpoint_version": None,
        "checkpoint_ms": None,
        "has_bad_hint": False,
    }
    return TableFacts(**values | changed)


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({"Origin": "http://console.example"}, True),
        ({"Origin": "http://console.example:81"}, False),
        ({"Origin": "http://[", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "http://["}, False),
        ({"Origin": "http://[::1"}, False),
        ({"Origin": "null"}, False),
        ({}, False),
        ({"Host": ""}, False),
        ({"Host": "", "Origin": "null"}, False),
    ],
)
def test_a_form_is_of_this_site_by_what_the_browser_states(headers, is_own):
    request = make_mocked_request("POST", "/", headers={"Host": "console.example", **headers})
    assert is_of_this_site(request) is is_own


def test_the_facts_of_a_table_are_not_read_while_its_storage_is_down():
    # An object without a snapshot: anything that is read of it is an error of another kind.
    with pytest.raises(NotCached):
        facts_of(SimpleNamespace(stale=True), 10)


def test_the_end_of_credentials_is_that_of_their_own_storage():
    assert is_within("s3://sales/", "s3://sales")
    assert is_within("s3://sales/eu/", "s3://sales/")
    assert not is_within("s3://sales-archive/", "s3://sales")
    assert not is_within("s3://sales", "s3://sales-archive")


def test_columns_have_their_types_as_spark_spells_them():
    inner = {
        "type": "array",
        "elementType": {"type": "map", "keyType": "string", "valueType": "decimal(9,2)"},
    }
    fields = [
        {"name": "day", "type": "date", "metadata": {"comment": "of the sale"}},
        {"name": "tags", "type": {"type": "struct", "fields": [{"name": "a", "type": inner}]}},
    ]
    assert _columns(json.dumps({"fields": fields}), frozenset({"day"})) == (
        (
            ColumnRow("day", "date", "of the sale", is_partition=True),
            ColumnRow("tags", "struct<a: array<map<string, decimal(9,2)>>>", "", is_partition=False),
        ),
        2,
    )
    many = json.dumps(
        {"fields": [{"name": f"c{number}", "type": "long"} for number in range(MAX_COLUMNS + 1)]}
    )
    shown, number = _columns(many, frozenset())
    assert (len(shown), number) == (MAX_COLUMNS, MAX_COLUMNS + 1)
    for text in (None, "[]", "{", '{"fields": 1}', '{"fields": [{"name": "x"}]}', "[" * 100_000):
        assert _columns(text, frozenset()) == ((), 0)


def test_the_recipients_of_a_share_and_a_table_are_those_whose_requests_are_answered():
    tables = [{"name": name, "location": f"/data/{name}"} for name in ("orders", "items")]
    schemas = [{"name": "eu", "tables": tables}, {"name": "us", "tables": tables}]
    shares = [{"name": "Sales", "schemas": schemas}]
    config = loads(yaml.safe_dump({"version": 1, "shares": shares, "gateway": {"anonymous": True}}))
    catalog = Catalog.of(config.shares)
    grants = {
        "all": ["*"],
        "whole": ["sales"],
        "schema": [Grant("sales", "eu")],
        "table": [Grant("sales", "us", "orders", "day = 'x'")],
        "everywhere": [Grant("*", None, "orders"), Grant("sales", "us", "orders")],
        "absent": [Grant("sales", "asia"), "other"],
    }
    recipients = [
        Recipient(
            name,
            frozenset(one for one in given if isinstance(one, str)),
            grants=tuple(one for one in given if isinstance(one, Grant)),
        )
        for name, given in grants.items()
    ]
    credentials = CredentialTable([Holder(one, (Credential(one.name.encode(), one),)) for one in recipients])

    def readers(*names, text="", only="", sort=""):
        answer = readers_of(catalog, credentials, AskReaders(*names, Selection(text, 1, only, sort)))
        return {row.recipient: row.grants for row in answer.items}

    assert readers("SALES", "us", "Orders") == {
        "all": ("*",),
        "everywhere": ("*.orders", "sales.us.orders"),
        "table": ("sales.us.orders where day = 'x'",),
        "whole": ("sales",),
    }
    assert readers("sales", "eu", "items").keys() == {"all", "whole", "schema"}
    assert readers("sales", None, None, text="E").keys() == {*grants} - {"all"}
    assert readers("sales", "us", "orders", only="whole").keys() == {"all", "whole"}
    assert readers("sales", "us", "orders", only="part").keys() == {"everywhere", "table"}
    assert [*readers("sales", "us", "orders", sort="grant")] == ["all", "everywhere", "whole", "table"]
    for table in catalog.tables():
        names = (table.share, table.schema, table.name)
        assert readers(*names).keys() == {one.name for one in recipients if may_read(catalog, one, *names)}
    assert readers("nothing", None, None) == readers("sales", "asia", "orders") == {}


def may_read(catalog, recipient, *names):
    with suppress(NotShared):
        return catalog.table(recipient, *names) is not None
    return False


def test_the_clients_that_can_read_a_table():
    (everyone,) = clients_of(facts())
    assert everyone.able
    typed = clients_of(facts(needs_delta_format=True, reader_features=("deletionVectors", "typeWidening")))
    assert [(client.name, client.able, client.reason) for client in typed] == [
        ("Python 1.4", False, "typewidening"),
        ("Spark 4", True, ""),
        ("Clients of the parquet format alone", False, "the delta format"),
    ]


def test_the_bars_of_a_histogram_have_the_width_of_their_share_of_the_largest():
    counts = [0, 50, 100, 0, 0, 0, 1]
    bars = bars_of(counts)
    assert len(bars) == len(SIZE_BOUNDS) + 1
    assert [bar.width for bar in bars] == [0.0, 50.0, 100.0, 0.0, 0.0, 0.0, 1.0]
    assert (bars[0].name, bars[2].name, bars[-1].name) == (
        "below 1 MiB",
        "16 MiB to 64 MiB",
        "1 GiB and more",
    )
    assert {bar.width for bar in bars_of([0] * 7)} == {0.0}


def test_a_chart_has_a_point_for_each_slot_and_a_row_for_each_with_requests():
    rings, now_ms = Rings(), 1_700_000_040_000
    for minutes, outcome in ((0, ANSWERED), (0, ANSWERED), (59, REFUSED), (61, ANSWERED)):
        at_ms = now_ms - minutes * 60_000
        rings.add([ALL], RequestFacts(at_ms, outcome, 1500, 2_000_000, 1, 0.02))
    charts = charts_of(rings.slots(ALL, "hour", now_ms), "hour", now_ms, has_streams=True)
    requests, files, sent, times, streams = charts
    answered, refused, failed = requests.series
    assert [series.name for series in requests.series] == ["answered", "refused", "failed"]
    assert len(answered.points) == 60
    assert (answered.points[0][0], answered.points[-1][0]) == (LEFT, WIDTH - RIGHT)
    zero = max(place for place, _ in requests.y_ticks)
    assert {y for _, y in failed.points} == {zero}
    assert answered.points[-1][1] < refused.points[0][1] < zero < HEIGHT
    assert requests.rows == [("21:15", ["0", "1", "0"]), ("22:14", ["2", "0", "0"])]
    assert dict(requests.y_ticks)[zero] == "0"
    assert [text for _, text in requests.x_ticks] == ["21:15", "21:30", "21:45", "22:00"]
    assert [row[1] for row in files.rows] == [["1,500"], ["3,000"]]
    assert [row[1] for row in sent.rows] == [["2 MB"], ["4 MB"]]
    assert [len(series.points) for series in times.series] == [2, 2], "no point without requests"
    assert times.rows[0][1] == ["25 ms", "25 ms"]
    assert len(streams.rows) == 2
    empty = charts_of({}, "day", now_ms, has_streams=False)
    assert len(empty) == 4
    assert [text for _, text in empty[2].y_ticks] == ["0", "1 B"]
