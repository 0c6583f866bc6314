"""`delta-gateway export`: the shares and recipients of the database as YAML, for `delta-gateway apply`.

Tokens and secrets are not stored in a form that could be exported: a recipient that is applied elsewhere gets
a new one there. A recipient that cannot be read is an error: without it an export would look whole.

With `--tables` the shared tables and their locations, after one search of each place where tables are
discovered. `verify` and `fleet` take it in place of the configuration, whose own tables alone they read: on a
cluster there is neither the database nor access to catalogs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.catalog.catalog import SharedTable
from gateway.cli.discovered_state import discovered_state, stored_shares
from gateway.cli.new_file import NewFile
from gateway.cli.share_documents import document_of
from gateway.cli.stored import actor, failed, on_database
from gateway.cli.yaml_text import dumped
from gateway.config import Config, load
from gateway.governance.audited_database import open_database, open_share_database
from gateway.governance.named_recipient import UnknownRecipient, named_recipient
from gateway.governance.recipient_records import RecipientRecord
from gateway.spark.targets import any_of
from gateway.telemetry.audit import AuditLog
from gateway.times import epoch_ms

if TYPE_CHECKING:
    from gateway.governance.share_store import ShareDatabase


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="the configuration")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="a new file; default: the standard output"
    )
    parser.add_argument(
        "--tables",
        action="store_true",
        help="the tables of the file, of the database and of one search of each place, for verify and fleet",
    )
    parser.add_argument(
        "--recipient", metavar="NAME", help="with --tables: those of a recipient, with its conditions"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.tables:
        return _export_tables(arguments)
    if arguments.recipient is not None:
        return failed("export", "--recipient needs --tables")

    def export(shares: ShareDatabase, config: Config, _audit: AuditLog | None) -> None:
        with closing(open_database(config, actor(), now_ms=epoch_ms, read_only=True)) as recipients:
            reading = recipients.read_all()
        reading.check_whole()
        text = exported(shares, reading.records)
        _write(text, arguments.output)

    return on_database(arguments, "export", open_share_database, export, reads=True)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    with NewFile(output, "the export", if_exists="remove it, or name another file") as file:
        file.write_text(text)
        file.keep()


def _export_tables(arguments: argparse.Namespace) -> int:
    """Print the tables of all shares, or those of a recipient with the conditions of its grants.

    What is left out is on standard error. Returns 1 where a search is not complete.
    """
    config = load(arguments.config, needs_readers=False)
    try:
        reader = None if arguments.recipient is None else named_recipient(config, arguments.recipient)
    except UnknownRecipient as error:
        return failed("export", error)
    discovered = discovered_state(config, stored_shares(config))
    for line in discovered.lines():
        sys.stderr.write(f"{line}\n")
    catalog = discovered.state.catalog
    tables = catalog.tables() if reader is None else catalog.tables_of(reader)
    _write(dumped({"tables": [_document(table) for table in tables]}), arguments.output)
    return 0 if discovered.is_complete else 1


def _document(table: SharedTable) -> dict[str, Any]:
    document: dict[str, Any] = {"table": table.full_name, "location": table.location.url}
    if table.history_shared:
        document["historyShared"] = True
    if table.start_version:
        document["startVersion"] = table.start_version
    if table.rule is not None:
        document["condition"] = any_of(table.rule.conditions)
        document["properties"] = dict(table.rule.properties)
    return document


def exported(shares: ShareDatabase, recipients: tuple[RecipientRecord, ...]) -> str:
    document = {
        "shares": [document_of(share) for share in shares.all().values()],
        "recipients": [recipient_document(record) for record in recipients],
    }
    return dumped(document)


def recipient_document(record: RecipientRecord) -> dict[str, Any]:
    """Return a recipient with the keys of the configuration, its texts and names of policies; no secrets."""
    grants: list[Any] = list(record.shares)
    for grant in record.grants:
        place = {"schema": grant.schema, "table": grant.table, "condition": grant.condition}
        grants.append({"share": grant.share, **_given(place)})
    policies = [
        {
            "name": stored.name,
            "issuer": stored.policy.issuer,
            "subjectClaim": stored.policy.subject_claim,
            "subject": stored.policy.subject,
            "audiences": sorted(stored.policy.audiences),
            **_given({"claims": dict(stored.policy.claims)}),
        }
        for stored in record.policies
    ]
    values: dict[str, Any] = {
        **record.texts,
        "shares": grants,
        "properties": dict(record.properties),
        "networks": list(record.networks),
        "oidc": policies,
        "forbidBearerTokens": record.forbids_bearer_tokens,
    }
    return {"name": record.name, **_given(values)}


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}
