"""What `delta-gateway check` says of tables that a catalog manages, through its command."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.http_service import Response, json_response
from support.ratified_log import RatifiedLog
from support.unity_catalog import Catalog, loaded_table, running_catalog

from gateway.__main__ import main

NAME = "main/sales/orders"
SECRET = "token-of-the-catalog"


def elsewhere(log: RatifiedLog) -> Response:
    return json_response(loaded_table(log) | {"metadata": {"location": "s3://secret/table"}})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, ""),
        (
            elsewhere,
            "has another location; correct `location`, or the name in `catalog`",
        ),
        (lambda _: Response(401), "it answers 401; its provider grants the right to read the table"),
        (
            lambda _: Response(404, b'{"error": {"code": 404}}'),
            "it answers 404; correct the name in `catalog`, or grant the right",
        ),
        (lambda _: Response(302), "it answers 302; correct `url` of `catalog`"),
        (lambda _: Response(503), "is unavailable for now: the catalog: it answers 503"),
        (lambda _: Response(200, b"{}"), "its answer has not the documented form"),
    ],
)
def test_the_reason_and_what_to_do_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    answer: Callable[[RatifiedLog], Response] | None,
    said: str,
) -> None:
    with running_catalog(token=SECRET) as catalog:
        log = managed(catalog, tmp_path)
        if answer is not None:
            catalog.loading[NAME] = answer(log)
        code, output = checked(tmp_path, log, catalog.url, capsys)
    assert said in output
    assert (code, "1 of 1 tables can be read" in output) == ((1, False) if said else (0, True))


def test_a_catalog_that_is_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_catalog() as catalog:
        log = managed(catalog, tmp_path)
    code, output = checked(tmp_path, log, catalog.url, capsys)
    assert code == 1
    assert "the table's catalog is unavailable for now: the catalog: it cannot be reached (" in output


def test_a_table_without_its_catalog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_catalog() as catalog:
        log = managed(catalog, tmp_path)
    code, output = checked(tmp_path, log, None, capsys)
    assert code == 1
    assert (
        "in a catalog, which the provider must configure: the configuration file names it by `catalog`"
        in (output)
    )


def managed(catalog: Catalog, directory: Path) -> RatifiedLog:
    log = catalog.managed[NAME] = RatifiedLog(directory / "table")
    log.commit()
    for name in log.files(1):
        (log.root / name).write_bytes(b"0123456789")
    return log


def checked(
    directory: Path, log: RatifiedLog, url: str | None, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    section = f"url: '{url}', name: main.sales.orders, token: {SECRET}, allowPrivateAddresses: true"
    named = f", catalog: {{{section}}}" if url else ""
    table = f"{{name: t, location: '{log.root}'{named}}}"
    file = directory / "gateway.yaml"
    file.write_text(
        f"version: 1\nshares: [{{name: s, schemas: [{{name: d, tables: [{table}]}}]}}]\n"
        "gateway: {anonymous: true}\n"
    )
    code = main(["check", "-c", str(file)])
    output = capsys.readouterr()
    everything = output.out + output.err
    assert SECRET not in everything
    assert "s3://secret" not in everything
    return code, everything
