"""`delta-gateway recipient`: the recipients' database on the command line.

In: parsed arguments. Out: the result on the standard output, and for a new token its profile file, or the
profile on the standard output without `--profile`. A profile is written before the token takes effect, so a
profile that cannot be written changes nothing. Running servers see a change within a second.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from gateway.catalog.grants import grant_text
from gateway.cli.durations import add_expires, lifetime, seconds
from gateway.cli.grants import (
    add_grant_arguments,
    add_property_arguments,
    change_properties,
    grant_of_parts,
    revoked,
)
from gateway.cli.new_file import NewFile
from gateway.cli.operations import Operations, Parser, add_repeated
from gateway.cli.profile_file import PrintedProfile, profile_file, warn_of_host
from gateway.cli.recipient_credentials import (
    add_link_arguments,
    add_policy_arguments,
    client_text,
    lives_text,
    policy_of,
    policy_text,
    print_clients,
    print_link,
    warn_of_keys,
)
from gateway.cli.stored import on_database
from gateway.config import Config
from gateway.database.errors import DatabaseMissing
from gateway.governance.audited_database import open_database
from gateway.governance.credentials import (
    FurtherCredential,
    NewClient,
    NewLink,
    NewSecret,
    NewToken,
    Policies,
)
from gateway.governance.recipient_records import (
    TEXTS,
    ChangeRecord,
    IssuedSecret,
    IssuedToken,
    LinkKind,
    RecipientError,
    RecipientRecord,
    described_by,
    profile_of,
)
from gateway.governance.recipient_store import RecipientDatabase
from gateway.protocol.profile import oauth_profile, profile_text
from gateway.report.text import escaped
from gateway.times import epoch_ms, utc_text

C = TypeVar("C", NewToken, NewClient, NewSecret, NewLink)

READING = frozenset({"show", "list", "history"})


class _AnyOrder(Parser):
    """A parser that accepts options between positional arguments (`grant NAME -c FILE SHARE`)."""

    _is_parsing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse intermixed arguments; argparse by itself rejects arguments after such an option."""
        if self._is_parsing:
            return super().parse_known_args(args, namespace)
        self._is_parsing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_parsing = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the operations and their arguments."""
    operation = Operations(parser, "recipient", "the recipient", parser_class=_AnyOrder).add
    add = operation(
        "add", "add a recipient and write its profile", "acme -c share.yaml --share sales --expires 90d"
    )
    add_repeated(add, "--share", "shares", "a share to grant; '*' for all; may be repeated", metavar="SHARE")
    add_repeated(
        add,
        "--allow",
        "networks",
        "accept the recipient from this network only; may be repeated; default: from anywhere",
        metavar="NETWORK",
    )
    for text, sentence in TEXTS.items():
        add.add_argument(f"--{text}", default="", metavar="TEXT", help=sentence)
    rotate = operation(
        "rotate",
        "issue a new token and end the old ones, at once or later",
        "acme -c share.yaml --old-expires 24h --expires 90d --profile acme-2.share",
    )
    identity = add.add_argument_group("a recipient of an identity provider, without a token of this server")
    identity.add_argument(
        "--oidc",
        action="store_true",
        help="accept tokens of an identity provider by the policy below; the profile is one to complete",
    )
    add_policy_arguments(identity)
    identity.add_argument(
        "--token-endpoint", metavar="URL", help="the provider's token endpoint, for the profile"
    )
    identity.add_argument("--client-id", metavar="ID", help="the recipient's client, for the profile")
    identity.add_argument("--scope", metavar="TEXT", help="the scope of its token requests, for the profile")
    add.add_argument(
        "--oauth",
        dest="oauth_client",
        action="store_true",
        help="add a client that gets short-lived tokens here for its secret, instead of a bearer token",
    )
    link = operation(
        "link",
        "print an activation link, which gives another profile once",
        "acme -c share.yaml --link-expires 24h --expires 90d",
    )
    add_link_arguments(add, link)
    client = operation(
        "client",
        "add, list, rotate or remove the clients that get short-lived tokens for a secret",
        "add acme -c share.yaml --expires 365d --profile acme.share",
        changes=("add", "list", "rotate", "remove"),
    )
    client.add_argument(
        "--client", dest="client_id", metavar="ID", help="the client; default: the recipient's only one"
    )
    for parser_of_secret in (rotate, client):
        parser_of_secret.add_argument(
            "--old-expires",
            dest="old_expires_in_seconds",
            type=seconds,
            default=0,
            metavar="24h",
            help="remaining lifetime of the old tokens or secrets; default 0s",
        )
    operation(
        "bearer-tokens",
        "forbid or allow the long-lived bearer tokens of a recipient",
        "forbid acme -c share.yaml",
        changes=("forbid", "allow"),
    )
    for parser_of_token in (add, rotate, client):
        add_expires(parser_of_token, "the new token or secret")
        parser_of_token.add_argument(
            "--profile", type=Path, metavar="FILE", help="write the profile to a new file; default: print it"
        )
        parser_of_token.add_argument("--overwrite", action="store_true", help="replace an existing profile")
    revoke = operation(
        "revoke",
        "end all tokens and client secrets at once, or take shares back",
        "acme -c share.yaml --share sales",
    )
    add_repeated(
        revoke,
        "--share",
        "shares",
        "take this share, SHARE.SCHEMA or SHARE.SCHEMA.TABLE back and keep the tokens; may be repeated",
        metavar="SHARE",
    )
    revoke.add_argument(
        "--all-parts",
        action="store_true",
        help="take back the grants for parts of these shares and with conditions, too",
    )
    grant = operation(
        "grant",
        "grant shares or parts of them, or set the networks of a recipient",
        'acme -c share.yaml sales.public.orders --where "country = recipient.country"',
    )
    add_grant_arguments(grant)
    _add_restriction_arguments(grant)
    policy = operation(
        "policy",
        "add, list or remove the policies that accept tokens of an identity provider",
        "add acme -c share.yaml --issuer https://idp.example --subject s --audience a",
        changes=("add", "list", "remove"),
    )
    add_policy_arguments(policy)
    for parser_of_shares in (add, grant, policy):
        parser_of_shares.add_argument(
            "--allow-absent",
            action="store_true",
            help="accept shares and issuers that are not in the configuration yet",
        )
    property_ = operation(
        "property",
        "set or remove texts of a recipient that conditions of grants use as recipient.NAME",
        "acme -c share.yaml country=de",
    )
    add_property_arguments(property_)
    operation(
        "delete",
        "delete a recipient with its tokens, clients and grants; its history stays",
        "acme -c share.yaml",
    )
    purge = operation(
        "purge",
        "delete expired tokens, expired client secrets and old history",
        "-c share.yaml --tokens-expired-for 30d --history-older-than 365d",
        named=False,
    )
    purge.add_argument(
        "--tokens-expired-for",
        dest="tokens_expired_for_seconds",
        type=seconds,
        metavar="30d",
        help="delete tokens and secrets that expired at least this long ago",
    )
    purge.add_argument(
        "--history-older-than",
        dest="history_older_than_seconds",
        type=seconds,
        metavar="365d",
        help="delete changes that are at least this old",
    )
    operation("show", "show one recipient and its history", "acme -c share.yaml")
    history = operation(
        "history",
        "show all changes, or those of one recipient, also of a deleted one",
        "acme -c share.yaml",
        named=False,
    )
    history.add_argument("name", nargs="?", metavar="NAME", help="the recipient; default: all")
    operation("list", "list all recipients", "-c share.yaml", named=False)


def _add_restriction_arguments(grant: argparse.ArgumentParser) -> None:
    restriction = grant.add_mutually_exclusive_group()
    restriction.add_argument(
        "--allow",
        dest="networks",
        action="append",
        metavar="NETWORK",
        help="accept the recipient from this network only, instead of the earlier ones; may be repeated",
    )
    restriction.add_argument(
        "--allow-anywhere",
        dest="networks",
        action="store_const",
        const=[],
        help="accept the recipient from every network",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run one operation; returns 0, or 1 with the reason on the standard error."""
    is_list = arguments.operation in {"policy", "client"} and arguments.change == "list"
    return on_database(
        arguments,
        "recipient",
        open_database,
        lambda database, config, _audit: _OPERATIONS[arguments.operation](database, config, arguments),
        reads=arguments.operation in READING or is_list,
        creates=arguments.operation == "add",
        without=_without if arguments.operation == "list" else None,
    )


def _without(_config: Config, missing: DatabaseMissing) -> None:
    sys.stderr.write(f"{missing}\n")


def _add(database: RecipientDatabase, config: Config, arguments: argparse.Namespace) -> None:
    if arguments.activation and (arguments.oidc or arguments.profile is not None):
        raise RecipientError("add: --activation excludes --oidc and --profile")
    if arguments.oidc:
        _add_federated(database, config, arguments)
        return
    _refuse_provider_options(arguments)
    life = lifetime(arguments.expires_in_seconds)
    if arguments.activation:
        kind: LinkKind = "client" if arguments.oauth_client else "token"
        link = NewLink(arguments.link_expires_in_seconds, life, kind)
        print_link(config, database.add(arguments.name, link, **described_by(arguments)))
        warn_of_host(config, "link")
        return
    credential = NewClient(life) if arguments.oauth_client else NewToken(life)
    added = partial(database.add, arguments.name, credential, **described_by(arguments))
    _issue(config, database, arguments, added)


def _issue(
    config: Config,
    database: RecipientDatabase,
    arguments: argparse.Namespace,
    issue: Callable[[], IssuedToken | IssuedSecret],
) -> None:
    """Issue a token or secret, whose profile is written before it takes effect."""
    with _profile_target(arguments) as file, database.issued(issue, file.keep) as issued:
        file.write_text(profile_text(profile_of(config.endpoint_url, issued)))
    warn_of_host(config, "profile")
    if isinstance(issued, IssuedSecret):
        warn_of_keys(config)
    _report_file(arguments, issued.expires_ms)


def _link(database: RecipientDatabase, config: Config, arguments: argparse.Namespace) -> None:
    print_link(config, database.issue(arguments.name, _credential(arguments, NewLink)))
    warn_of_host(config, "link")


def _refuse_provider_options(arguments: argparse.Namespace) -> None:
    """Raise RecipientError for options of a recipient of an identity provider."""
    if arguments.issuer or arguments.subject or arguments.audiences or arguments.claims:
        raise RecipientError("add: a policy is for a recipient with --oidc")
    if arguments.token_endpoint or arguments.client_id or arguments.scope:
        raise RecipientError("add: --token-endpoint, --client-id and --scope are for a recipient with --oidc")


def _add_federated(database: RecipientDatabase, config: Config, arguments: argparse.Namespace) -> None:
    if arguments.oauth_client:
        raise RecipientError("add: --oauth and --oidc exclude each other")
    if arguments.expires_in_seconds is not None:
        raise RecipientError(
            "add: --expires is for tokens of this server; the provider's tokens have their own end"
        )
    profile = oauth_profile(
        config.endpoint_url,
        token_endpoint=arguments.token_endpoint,
        client_id=arguments.client_id,
        scope=arguments.scope,
    )
    with _profile_target(arguments) as file:
        policies = Policies({arguments.policy: policy_of(arguments)})
        added = partial(database.add, arguments.name, policies, **described_by(arguments))
        with database.issued(added, file.keep):
            file.write_text(profile_text(profile))
    warn_of_host(config, "profile")
    if arguments.profile is not None:
        place = escaped(str(arguments.profile))
        sys.stdout.write(f"{place} holds the profile of {arguments.name}, who completes it\n")


def _client(database: RecipientDatabase, config: Config, arguments: argparse.Namespace) -> None:
    if arguments.change in ("add", "rotate"):
        credential: FurtherCredential[IssuedSecret] = _credential(arguments, NewClient)
        if arguments.change == "rotate":
            credential = _credential(arguments, NewSecret)
        elif arguments.client_id is not None:
            raise RecipientError("client add: the server chooses the id; --client is for rotate and remove")
        _issue(config, database, arguments, lambda: database.issue(arguments.name, credential))
        return
    if arguments.change == "remove":
        record = database.remove_client(arguments.name, arguments.client_id)
    else:
        record = database.show(arguments.name)
    print_clients(record, epoch_ms())


def _bearer_tokens(database: RecipientDatabase, _config: Config, arguments: argparse.Namespace) -> None:
    _print(database.forbid_bearer_tokens(arguments.name, forbidden=arguments.change == "forbid"))


def _policy(database: RecipientDatabase, _config: Config, arguments: argparse.Namespace) -> None:
    if arguments.change == "add":
        record = database.add_policy(
            arguments.name, arguments.policy, policy_of(arguments), allow_absent=arguments.allow_absent
        )
    elif arguments.change == "remove":
        record = database.remove_policy(arguments.name, arguments.policy)
    else:
        record = database.show(arguments.name)
    if not record.policies:
        sys.stdout.write(f"{escaped(record.name)} has no policy\n")
    for stored in record.policies:
        sys.stdout.write(f"{escaped(record.name)}: {policy_text(stored)}\n")


def _rotate(database: RecipientDatabase, config: Config, arguments: argparse.Namespace) -> None:
    credential = _credential(arguments, NewToken)
    _issue(config, database, arguments, lambda: database.issue(arguments.name, credential))


def _credential(arguments: argparse.Namespace, kind: type[C]) -> C:
    """Return the credential that the arguments give: they have the names of its fields."""
    given = {
        field.name: getattr(arguments, field.name) for field in fields(kind) if hasattr(arguments, field.name)
    }
    return kind(**{**given, "expires_in_seconds": lifetime(arguments.expires_in_seconds)})


def _revoke(database: RecipientDatabase, config: Config, arguments: argparse.Namespace) -> None:
    record, taken = revoked(database, config, arguments)
    _print(record)
    for text in record.still_readable(taken):
        sys.stderr.write(
            "delta-gateway recipient: warning: something of it may still be read by the grant "
            f"{escaped(text)}\n"
        )
    if record.policies and not arguments.shares:
        sys.stderr.write(
            "delta-gateway recipient: warning: tokens of an identity provider are accepted on by the "
            "policies of the recipient; `recipient policy remove` ends them\n"
        )


def _grant(database: RecipientDatabase, config: Config, arguments: argparse.Namespace) -> None:
    if not arguments.shares and arguments.networks is None:
        raise RecipientError("grant: name shares, or networks by --allow or --allow-anywhere")
    if (of_parts := grant_of_parts(database, config, arguments)) is not None:
        record = of_parts
    elif arguments.shares:
        record = database.grant(
            arguments.name,
            arguments.shares,
            networks=arguments.networks,
            allow_absent=arguments.allow_absent,
        )
    else:
        record = database.allow(arguments.name, arguments.networks)
    _print(record)


def _property(database: RecipientDatabase, _config: Config, arguments: argparse.Namespace) -> None:
    _print(change_properties(database, arguments))


def _delete(database: RecipientDatabase, _config: Config, arguments: argparse.Namespace) -> None:
    record = database.delete(arguments.name)
    sys.stdout.write(f"{escaped(record.name)} is deleted, with {len(record.tokens)} tokens\n")


def _purge(database: RecipientDatabase, _config: Config, arguments: argparse.Namespace) -> None:
    tokens, history = arguments.tokens_expired_for_seconds, arguments.history_older_than_seconds
    if tokens is None and history is None:
        raise RecipientError("purge: give --tokens-expired-for, --history-older-than or both")
    purged = database.purge(tokens_expired_for_seconds=tokens, history_older_than_seconds=history)
    sys.stdout.write(f"deleted: {purged.tokens} tokens, {purged.changes} changes of the history\n")


def _show(database: RecipientDatabase, _config: Config, arguments: argparse.Namespace) -> None:
    record = database.show(arguments.name)
    _print(record, is_served=database.is_served(record))
    for change in database.history(arguments.name):
        sys.stdout.write(f"{utc_text(change.at_ms)} {_described(change)}\n")


def _history(database: RecipientDatabase, _config: Config, arguments: argparse.Namespace) -> None:
    changes = database.history(arguments.name)
    if arguments.name is not None and not changes:
        raise RecipientError(f"the history has no change of a recipient {arguments.name!r}")
    for change in changes:
        # A change of no single recipient has no name.
        name = f"{escaped(change.recipient)} " if change.recipient else ""
        sys.stdout.write(f"{utc_text(change.at_ms)} {name}{_described(change)}\n")


def _described(change: ChangeRecord) -> str:
    detail = " ".join(f"{key}={value}" for key, value in change.shown_detail.items())
    return escaped(f"{change.action} by {change.actor} {detail}".rstrip())


def _list(database: RecipientDatabase, _config: Config, _arguments: argparse.Namespace) -> None:
    for record in database.list():
        _print(record, is_served=database.is_served(record))


_OPERATIONS: Mapping[str, Callable[[RecipientDatabase, Config, argparse.Namespace], None]] = {
    "add": _add,
    "rotate": _rotate,
    "link": _link,
    "revoke": _revoke,
    "grant": _grant,
    "property": _property,
    "delete": _delete,
    "purge": _purge,
    "policy": _policy,
    "client": _client,
    "bearer-tokens": _bearer_tokens,
    "show": _show,
    "list": _list,
    "history": _history,
}


def _profile_target(arguments: argparse.Namespace) -> NewFile | PrintedProfile:
    """Return where the profile is written. Raises OSError where it cannot be written."""
    if arguments.profile is None:
        return PrintedProfile()
    return profile_file(arguments.profile, overwrite=arguments.overwrite)


def _report_file(arguments: argparse.Namespace, expires_ms: int | None) -> None:
    end = "never ends" if expires_ms is None else f"ends at {utc_text(expires_ms)}"
    if arguments.profile is not None:
        place = escaped(str(arguments.profile))
        sys.stdout.write(
            f"{place} holds the profile of {arguments.name}, which {end}; it is not kept anywhere else\n"
        )
    else:
        sys.stderr.write(f"The profile of {arguments.name} {end}.\n")


def _print(record: RecipientRecord, *, is_served: bool = True) -> None:
    now_ms = epoch_ms()
    lives = lives_text(record.tokens, now_ms)
    granted = (*record.shares, *map(grant_text, record.grants))
    shares = ", ".join(granted) or "none"
    networks = ", ".join(record.networks) or "anywhere"
    texts = "".join(f"; {name}: {text}" for name, text in record.texts.items() if text)
    tokens = lives or "none alive"
    if record.forbids_bearer_tokens:
        tokens = f"forbidden ({tokens})" if lives else "forbidden"
    properties = "".join(f"; {key}={text}" for key, text in record.properties)
    policies = "".join(f"; {policy_text(stored)}" for stored in record.policies)
    clients = "".join(f"; {client_text(client, now_ms)}" for client in record.clients)
    refused = "" if is_served else "; refused: the configuration file has a recipient of this name"
    described = f"{clients}{policies}{properties}{texts}{refused}"
    line = f"{record.name}: shares {shares}; from {networks}; tokens: {tokens}{described}"
    sys.stdout.write(f"{escaped(line)}\n")
