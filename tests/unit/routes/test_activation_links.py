"""Activation links over a real socket: a changed link, and a form that is sent twice."""

import asyncio
import logging
import re
from contextlib import closing
from pathlib import Path

import pytest
from support.gateway_app import PREFIX, serve
from support.live_process import running_process
from yarl import URL

from gateway.governance.audited_database import open_database
from gateway.governance.credentials import NewLink
from gateway.limits.attempts import PAIR_FAILURES
from gateway.times import epoch_ms

ADDRESS = f"{PREFIX}/activate"
CODE = "a-code-that-nobody-may-see"


async def test_a_link_whose_sign_was_encoded_gets_the_page_and_its_code_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client, _ = await serve("gateway: {anonymous: true}\n")
    with caplog.at_level(logging.INFO):
        answer = await client.get(f"{ADDRESS}%23{CODE}")
        text = await answer.text()
        await client.close()
    assert (answer.status, answer.content_type) == (200, "text/html")
    assert "its # became %23" in text
    assert CODE not in text + caplog.text
    assert f'"path":"{ADDRESS}#"' in caplog.text


@pytest.mark.parametrize("path", ["%2523{}", "/%23{}", "/{}", "/x/{}", "%20%23{}", ".css%23{}"])
async def test_a_code_is_not_logged_wherever_a_client_puts_it(
    caplog: pytest.LogCaptureFixture, path: str
) -> None:
    client, _ = await serve("gateway: {anonymous: true}\n")
    with caplog.at_level(logging.INFO):
        text = await (await client.get(ADDRESS + path.format(CODE))).text()
        await client.close()
    assert CODE not in text + caplog.text
    assert f'"path":"{ADDRESS}' in caplog.text


@pytest.mark.parametrize(
    ("before", "status"), [(f"{PREFIX}/", 200), (f"{PREFIX}//", 200), ("", 404), (f"/proxy{PREFIX}", 404)]
)
@pytest.mark.parametrize("sign", ["%23", "%2523", "%252523"])
async def test_a_code_is_not_logged_where_a_proxy_has_changed_the_path(
    caplog: pytest.LogCaptureFixture, before: str, status: int, sign: str
) -> None:
    client, _ = await serve("gateway: {anonymous: true}\n")
    with caplog.at_level(logging.INFO):
        answer = await client.get(URL(f"{before}/activate{sign}{CODE}", encoded=True))
        text = await answer.text()
        await client.close()
    assert answer.status == (status if sign == "%23" else 404)
    assert CODE not in text + caplog.text
    assert f'"path":"{before}/activate' in caplog.text


async def test_a_share_may_have_the_name_of_the_page(caplog: pytest.LogCaptureFixture) -> None:
    client, _ = await serve("gateway: {anonymous: true}\n")
    path = f"{PREFIX}/shares/activate/schemas/activated/tables"
    with caplog.at_level(logging.INFO):
        await (await client.get(path)).read()
        await client.close()
    assert f'"path":"{path}"' in caplog.text


async def test_a_form_that_is_sent_twice_gets_one_profile_twice(tmp_path: Path) -> None:
    client, config = await serve(
        f"shares: [{{name: s}}]\ngateway: {{recipientsDatabase: '{tmp_path}/recipients.db'}}\n"
    )
    with closing(open_database(config, "test", now_ms=epoch_ms)) as database:
        link = database.add("alice", NewLink(60), shares=["s"])
    page = await (await client.get(ADDRESS)).text()
    form = re.search(r'name="form" value="([^"]+)"', page)
    assert form is not None
    fields = {"code": link.code, "form": form[1]}
    answers = await asyncio.gather(*(client.post(ADDRESS, data=fields) for _ in range(2)))
    texts = [await answer.text() for answer in answers]
    other = await client.post(ADDRESS, data={**fields, "form": "another"})
    bare = await client.post(ADDRESS, data={"code": link.code})
    await client.close()
    assert [answer.status for answer in (*answers, other, bare)] == [200, 200, 404, 404]
    assert texts[0] == texts[1]
    assert "bearerToken" in texts[0]


async def test_attempts_at_once_have_no_larger_budget_than_one_after_another(tmp_path: Path) -> None:
    client, config = await serve(
        f"shares: [{{name: s}}]\ngateway: {{recipientsDatabase: '{tmp_path}/recipients.db'}}\n"
    )
    with closing(open_database(config, "test", now_ms=epoch_ms)) as database:
        database.add("alice", shares=["s"])
    guesses = [{"code": f"guess-{number}"} for number in range(40)]
    answers = await asyncio.gather(*(client.post(ADDRESS, data=fields) for fields in guesses))
    await client.close()
    statuses = [answer.status for answer in answers]
    assert statuses.count(404) == PAIR_FAILURES
    assert set(statuses) == {404, 429}


async def test_a_database_that_is_gone_is_no_link_that_does_not_exist(tmp_path: Path) -> None:
    database = tmp_path / "recipients.db"
    client, config = await serve(f"shares: [{{name: s}}]\ngateway: {{recipientsDatabase: '{database}'}}\n")
    with closing(open_database(config, "test", now_ms=epoch_ms)) as opened:
        link = opened.add("alice", NewLink(60), shares=["s"])
    database.rename(tmp_path / "away")
    gone = [await client.post(ADDRESS, data={"code": link.code}) for _ in range(PAIR_FAILURES + 1)]
    texts = [await answer.text() for answer in gone]
    (tmp_path / "away").rename(database)
    back = await client.post(ADDRESS, data={"code": link.code})
    await client.close()
    assert {answer.status for answer in gone} == {503}
    assert "not used up" in texts[-1]
    assert back.status == 200


async def test_a_database_that_was_made_meanwhile_and_is_gone_is_no_link_that_does_not_exist(
    tmp_path: Path,
) -> None:
    settings = {"version": 1, "shares": [{"name": "s"}], "gateway": {"anonymous": True}}
    database = tmp_path / "recipients.db"
    async with running_process(tmp_path / "gateway.yaml", settings) as live, asyncio.timeout(20):
        with closing(open_database(live.process.config, "test", now_ms=live.clock)) as opened:
            link = opened.add("alice", NewLink(60), shares=["s"])
        while not live.process.credential_store.had_database:
            await asyncio.sleep(0.05)
        database.rename(tmp_path / "away")
        # No process has opened the database for a link before.
        gone = [await live.client.post(ADDRESS, data={"code": link.code}) for _ in range(PAIR_FAILURES + 1)]
        (tmp_path / "away").rename(database)
        back = await live.client.post(ADDRESS, data={"code": link.code})
    assert [answer.status for answer in (*gone, back)] == [*[503] * (PAIR_FAILURES + 1), 200]


async def test_a_guess_at_a_server_without_a_database_is_no_fault_of_the_server() -> None:
    client, _ = await serve("gateway: {anonymous: true}\n")
    answers = [await client.post(ADDRESS, data={"code": CODE}) for _ in range(PAIR_FAILURES + 1)]
    await client.close()
    assert [answer.status for answer in answers] == [*[404] * PAIR_FAILURES, 429]
