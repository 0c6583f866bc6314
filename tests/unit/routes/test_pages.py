"""Pages of a query through a real socket: together the whole answer, with tokens bound to the query."""

import base64
import json
import os
from pathlib import Path

import pytest
from support.gateway_app import Clock, serve
from support.history_table import (
    TABLE,
    VERSIONS,
    Client,
    commit,
    configuration,
    end,
    ids,
    query,
    refused,
)


@pytest.mark.parametrize("size", [1, 2, 5, 12, 50])
async def test_pages_make_up_the_answer_and_begin_alike(client: Client, size: int) -> None:
    _, whole = await query(client, {})
    response, page = await query(client, {"maxFiles": size})
    heads, seen = [(response.headers["Delta-Table-Version"], page[:2])], ids(page)
    while token := end(page).get("nextPageToken"):
        response, page = await query(client, {"maxFiles": size, "pageToken": token})
        heads.append((response.headers["Delta-Table-Version"], page[:2]))
        assert 0 < len(ids(page)) <= size
        seen += ids(page)
    assert seen == ids(whole)
    assert all(head == heads[0] for head in heads)


async def test_a_commit_between_pages_changes_nothing(client: Client, root: Path) -> None:
    _, whole = await query(client, {})
    _, first = await query(client, {"maxFiles": 7})
    commit(root, VERSIONS)
    response, second = await query(client, {"maxFiles": 7, "pageToken": end(first)["nextPageToken"]})
    assert ids(first) + ids(second) == ids(whole)
    assert response.headers["Delta-Table-Version"] == "3"


async def test_tokens_of_a_recreated_table_are_refused(client: Client, root: Path) -> None:
    _, page = await query(client, {"maxFiles": 2, "includeRefreshToken": True})
    first = root / "_delta_log" / f"{0:020}.json"
    first.write_text(first.read_text().replace("table-id", "another-id"))
    replica, _ = await serve(configuration(root))
    try:
        await refused(replica, {"maxFiles": 2, "pageToken": end(page)["nextPageToken"]})
        await refused(replica, {"refreshToken": end(page)["refreshToken"]})
    finally:
        await replica.close()


async def test_a_page_of_a_log_that_was_written_again_in_its_place_is_refused(
    client: Client, root: Path
) -> None:
    _, page = await query(client, {"maxFiles": 2})
    # As long as before and with the same id: only the store's own time shows it.
    os.utime(root / "_delta_log" / f"{VERSIONS - 1:020}.json", ns=(0, 1_700_000_000_000_000_001))
    replica, _ = await serve(configuration(root))
    try:
        await refused(replica, {"maxFiles": 2, "pageToken": end(page)["nextPageToken"]})
    finally:
        await replica.close()


def write_checkpoint(root: Path, version: int) -> None:
    """Write a checkpoint of all files that the commits add, beside them."""
    commits = [(root / "_delta_log" / f"{number:020}.json").read_text() for number in range(version + 1)]
    lines = [line for text in commits for line in text.splitlines() if "commitInfo" not in line]
    name = f"{version:020}.checkpoint.00000000-0000-0000-0000-000000000000.json"
    head = json.dumps({"checkpointMetadata": {"version": version}})
    (root / "_delta_log" / name).write_text("\n".join([head, *lines, ""]))


@pytest.mark.parametrize("parameters", [{}, {"startingVersion": 1}])
@pytest.mark.parametrize("has_checkpoint", [False, True])
async def test_a_page_of_a_version_that_was_restored_away_and_written_again_is_refused(
    root: Path, clock: Clock, has_checkpoint: bool, parameters: dict[str, int]
) -> None:
    if has_checkpoint:
        write_checkpoint(root, 1)
    client, replica = [(await serve(configuration(root), clock=clock))[0] for _ in range(2)]
    try:
        _, page = await query(client, {"maxFiles": 2, **parameters})
        later = root / "_delta_log" / f"{VERSIONS - 1:020}.json"
        text = later.read_text()
        # From a backup that lacks it. The next commit of the same table is of the same version.
        later.unlink()
        later.write_text(text.replace("table-id-", "restored-"))
        os.utime(later, ns=(0, 1_700_000_000_000_000_001))
        await refused(replica, {"maxFiles": 2, "pageToken": end(page)["nextPageToken"], **parameters})
    finally:
        await client.close()
        await replica.close()


async def test_another_replica_with_the_key_continues(client: Client, root: Path, clock: Clock) -> None:
    _, first = await query(client, {"maxFiles": 5})
    replica, _ = await serve(configuration(root), clock=clock)
    try:
        _, second = await query(replica, {"pageToken": end(first)["nextPageToken"]})
    finally:
        await replica.close()
    _, whole = await query(client, {})
    assert ids(first) + ids(second) == ids(whole)


async def test_a_page_token_is_bound_to_its_query(client: Client, clock: Clock) -> None:
    hints = {"predicateHints": ["x >= 2"], "maxFiles": 2}
    _, page = await query(client, hints)
    token = {"pageToken": end(page)["nextPageToken"]}
    await query(client, hints | {"maxFiles": 3} | token)
    await refused(client, {"maxFiles": 2} | token)
    await refused(client, hints | {"limitHint": 5} | token)
    await refused(client, hints | {"version": 0} | token)
    await refused(client, {"startingVersion": 0} | token)
    await refused(client, hints | token, fileidhash="delta")
    await refused(client, hints | token, name="bob")
    await refused(client, hints | token, path=TABLE[:-1] + "other")
    await refused(client, hints | token, **{"delta-sharing-capabilities": "responseformat=delta"})
    clock.now_ms += 259_200_000
    await refused(client, hints | token)


async def test_a_limit_holds_over_all_pages(client: Client) -> None:
    _, whole = await query(client, {"limitHint": 45})
    body = {"limitHint": 45, "maxFiles": 2}
    _, page = await query(client, body)
    seen = ids(page)
    while token := end(page).get("nextPageToken"):
        _, page = await query(client, body | {"pageToken": token})
        seen += ids(page)
    assert seen == ids(whole)
    assert len(seen) == 5


async def test_the_configured_page_size_is_the_ceiling(root: Path, clock: Clock) -> None:
    client, _ = await serve(configuration(root, extra="queryTablePageSizeLimit: 4\n"), clock=clock)
    try:
        assert len(ids((await query(client, {"maxFiles": 100}))[1])) == 4
        assert len(ids((await query(client, {}))[1])) == 12
    finally:
        await client.close()


async def test_page_tokens_that_follow_from_one_another_end_with_the_first(root: Path, clock: Clock) -> None:
    text = configuration(root, history_shared=False, extra="queryTablePageTokenTtlMs: 2000\n")
    client, _ = await serve(text, clock=clock)
    try:
        _, page = await query(client, {"maxFiles": 1})
        for _ in range(3):
            clock.now_ms += 600
            _, page = await query(client, {"maxFiles": 1, "pageToken": end(page)["nextPageToken"]})
        clock.now_ms += 200
        await refused(client, {"maxFiles": 1, "pageToken": end(page)["nextPageToken"]})
    finally:
        await client.close()


async def test_a_token_with_any_bit_flipped_is_refused_and_nothing_else(client: Client) -> None:
    _, page = await query(client, {"maxFiles": 2, "includeRefreshToken": True})
    for name, token in (
        ("pageToken", end(page)["nextPageToken"]),
        ("refreshToken", end(page)["refreshToken"]),
    ):
        sealed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        for bit in range(len(sealed) * 8):
            altered = bytearray(sealed)
            altered[bit // 8] ^= 1 << bit % 8
            text = base64.urlsafe_b64encode(altered).rstrip(b"=").decode()
            await refused(client, {name: text} | ({"maxFiles": 2} if name == "pageToken" else {}))
