"""Operations on the recipients' database: recipients, their tokens, clients, grants and networks.

In: the operations of `delta-gateway recipient` and of the admin API, one method each. Out: frozen records,
and the plain text of a new token once (only its SHA-256 is stored). Every change writes a history entry in
the same transaction and is passed to `on_change` for the audit log. A recipient has at most two valid tokens,
and no operation extends the life of an old one.
"""

from __future__ import annotations

import json
import re
import secrets
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

from gateway.access import client_rows
from gateway.access.authentication import token_hash
from gateway.access.federation import FederationPolicy, stored_policy
from gateway.access.recipient_names import (
    check_comment,
    check_name,
    check_network,
    check_policy,
    check_share,
)
from gateway.access.recipient_records import (
    Change,
    IssuedSecret,
    IssuedToken,
    NewRecipient,
    PolicyRecord,
    Purged,
    RecipientError,
    RecipientExists,
    RecipientNotFound,
    RecipientRecord,
    TokenRecord,
)
from gateway.access.recipient_schema import has_clients, has_policies, open_file, transaction
from gateway.config.sections import EVERY_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

TOKEN_BYTES = 32
MAX_LIFE_SECONDS = 10 * 365 * 86_400
OWNED_TABLES = (
    "tokens", "client_secrets", "clients", "bearer_tokens_forbidden", "grants", "networks", "policies",
)  # fmt: skip
NOBODY = ""
"""The recipient in the record of a change without a single recipient."""

_FORBIDDEN = "SELECT recipient FROM bearer_tokens_forbidden WHERE ?1 IS NULL OR recipient = ?1"
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def _undelivered(_issued: IssuedToken) -> None:
    """Do nothing with a new token, which the caller gets."""


def _undelivered_secret(_issued: IssuedSecret) -> None:
    """Do nothing with a new secret, which the caller gets."""


def _nothing() -> None:
    """Do nothing after the commit."""


class RecipientDatabase:
    """One connection to the database.

    Not thread-safe; open one for each thread. SQLite's locks make changes from several processes safe.
    """

    def __init__(
        self,
        path: Path,
        *,
        now_ms: Callable[[], int],
        actor: str = "server",
        create: bool = True,
        read_only: bool = False,
        taken_names: Callable[[], frozenset[str]] = frozenset,
        known_shares: Callable[[], Iterable[str]] | None = None,
        known_issuers: Callable[[], Iterable[str]] | None = None,
        before_change: Callable[[Change], None] = lambda _change: None,
        on_change: Callable[[Change], None] = lambda _change: None,
    ) -> None:
        """Open the file. Raises as `recipient_schema.open_file`.

        `taken_names`: lower-case names of recipients in the configuration file. `known_shares`: the shares
        that can be granted; `known_issuers`: the issuers that policies can name; None: any. `before_change`
        is called with each change before it is committed, and may raise to refuse it; `on_change` is called
        afterwards.
        """
        self._now_ms = now_ms
        self._actor = actor
        self._taken_names = taken_names
        self._known_shares = known_shares
        self._known_issuers = known_issuers
        self._before_change = before_change
        self._on_change = on_change
        self._connection = open_file(path, create=create, read_only=read_only)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def list(self) -> tuple[RecipientRecord, ...]:
        """Return all recipients by name, from one consistent read."""
        with transaction(self._connection, "BEGIN"):
            return self._read(None)

    def show(self, name: str) -> RecipientRecord:
        """Return a recipient. Raises RecipientNotFound."""
        with transaction(self._connection, "BEGIN"):
            return self._one(name)

    def history(self, name: str | None) -> tuple[Change, ...]:
        """Return the changes of a recipient, also of a deleted one, oldest first; None: all changes."""
        rows = self._connection.execute(
            "SELECT at_ms, actor, action, recipient, detail FROM history"
            " WHERE ?1 IS NULL OR recipient = ?1 ORDER BY rowid",
            (name,),
        )
        return tuple(
            Change(at, actor, action, who, _unpack(detail)) for at, actor, action, who, detail in rows
        )

    def add(
        self,
        name: str,
        *,
        expires_in_seconds: int | None = None,
        deliver: Callable[[IssuedToken], None] = _undelivered,
        committed: Callable[[], None] = _nothing,
        **described: Unpack[NewRecipient],
    ) -> IssuedToken:
        """Add a recipient, and return its first token.

        `deliver` is called with the token just before the commit; if it raises, nothing is changed.
        `committed` is called right after the commit, before anything else that may fail.
        """
        self._check_new(name, described.get("comment", ""))
        with self._change("createRecipient", name, lambda: deliver(issued), committed) as detail:
            self._insert(name, detail, **described)
            issued = self._issue(name, expires_in_seconds, detail)
            return issued

    def add_federated(
        self,
        name: str,
        policies: Mapping[str, FederationPolicy],
        *,
        deliver: Callable[[], None] = _nothing,
        committed: Callable[[], None] = _nothing,
        **described: Unpack[NewRecipient],
    ) -> RecipientRecord:
        """Add a recipient that uses tokens of an identity provider, and none of this server.

        `deliver` and `committed` as for `add`.
        """
        self._check_new(name, described.get("comment", ""))
        with self._change("createRecipient", name, deliver, committed) as detail:
            self._insert(name, detail, **described)
            allow_absent = described.get("allow_absent", False)
            for policy_name, policy in policies.items():
                self._insert_policy(name, policy_name, policy, allow_absent=allow_absent)
            detail["policies"] = " ".join(policies)
            return self._one(name)

    def add_with_client(
        self,
        name: str,
        *,
        expires_in_seconds: int | None = None,
        deliver: Callable[[IssuedSecret], None] = _undelivered_secret,
        committed: Callable[[], None] = _nothing,
        **described: Unpack[NewRecipient],
    ) -> IssuedSecret:
        """Add a recipient with an OAuth client and without a bearer token, which is forbidden to it.

        The arguments are those of `add`, for the client's secret.
        """
        self._check_new(name, described.get("comment", ""))
        with self._change("createRecipient", name, lambda: deliver(issued), committed) as detail:
            self._insert(name, detail, **described)
            client_rows.forbid_bearer_tokens(self._connection, name, forbidden=True)
            detail["bearerTokensForbidden"] = "true"
            client_id = client_rows.insert_client(self._connection, self._one(name), self._now_ms())
            issued = self._issue_secret(name, client_id, expires_in_seconds, detail)
            return issued

    def add_client(
        self,
        name: str,
        *,
        expires_in_seconds: int | None = None,
        deliver: Callable[[IssuedSecret], None] = _undelivered_secret,
        committed: Callable[[], None] = _nothing,
    ) -> IssuedSecret:
        """Add an OAuth client to a recipient, and return its first secret. Raises RecipientNotFound.

        `deliver` and `committed` as for `add`.
        """
        with self._change("createClient", name, lambda: deliver(issued), committed) as detail:
            record = self._one(name)
            client_id = client_rows.insert_client(self._connection, record, self._now_ms())
            issued = self._issue_secret(record.name, client_id, expires_in_seconds, detail)
            return issued

    def rotate_client(
        self,
        name: str,
        client_id: str | None = None,
        *,
        old_expires_in_seconds: int = 0,
        expires_in_seconds: int | None = None,
        deliver: Callable[[IssuedSecret], None] = _undelivered_secret,
        committed: Callable[[], None] = _nothing,
    ) -> IssuedSecret:
        """Issue a new secret. Only the youngest old secret stays valid, as a token does for `rotate`.

        Without `client_id` the recipient must have one client. Raises RecipientNotFound.
        """
        _check_old_life(old_expires_in_seconds, "secret")
        with self._change("rotateClientSecret", name, lambda: deliver(issued), committed) as detail:
            record = self._one(name)
            client = client_rows.find(record, client_id)
            self._end_old("client_secrets", client.secrets, old_expires_in_seconds)
            detail["oldSecretExpiresInSeconds"] = str(old_expires_in_seconds)
            issued = self._issue_secret(record.name, client.id, expires_in_seconds, detail)
            return issued

    def remove_client(self, name: str, client_id: str | None = None) -> RecipientRecord:
        """Remove an OAuth client, whose access tokens end with it. Raises RecipientNotFound."""
        with self._change("deleteClient", name) as detail:
            client = client_rows.find(self._one(name), client_id)
            client_rows.delete(self._connection, client.id)
            detail["client"] = client.id
            return self._one(name)

    def forbid_bearer_tokens(self, name: str, *, forbidden: bool) -> RecipientRecord:
        """Refuse the bearer tokens of a recipient, or accept those that have not ended again."""
        with self._change("updateRecipient", name) as detail:
            record = self._one(name)
            client_rows.forbid_bearer_tokens(self._connection, record.name, forbidden=forbidden)
            detail["bearerTokensForbidden"] = "true" if forbidden else "false"
            return self._one(name)

    def _issue_secret(
        self, name: str, client_id: str, expires_in_seconds: int | None, detail: dict[str, str]
    ) -> IssuedSecret:
        now_ms = self._now_ms()
        expires_ms = _end(now_ms, expires_in_seconds, "secret")
        secret = secrets.token_urlsafe(TOKEN_BYTES)
        stored = TokenRecord(token_hash(secret).hex(), now_ms, expires_ms)
        client_rows.insert_secret(self._connection, name, client_id, stored)
        detail |= {"client": client_id, "secretExpiresMs": _end_text(expires_ms)}
        return IssuedSecret(name, client_id, secret, expires_ms)

    def add_policy(
        self, name: str, policy_name: str, policy: FederationPolicy, *, allow_absent: bool = False
    ) -> RecipientRecord:
        """Add a federation policy to a recipient. Raises RecipientNotFound, RecipientExists."""
        with self._change("createFederationPolicy", name) as detail:
            record = self._one(name)
            self._insert_policy(record.name, policy_name, policy, allow_absent=allow_absent)
            detail |= {"policy": policy_name, "issuer": policy.issuer}
            return self._one(name)

    def remove_policy(self, name: str, policy_name: str) -> RecipientRecord:
        """Remove a federation policy of a recipient. Raises RecipientNotFound."""
        with self._change("deleteFederationPolicy", name) as detail:
            record = self._one(name)
            if all(policy.name != policy_name for policy in record.policies):
                raise RecipientNotFound(f"recipient {record.name!r} has no policy {policy_name!r}")
            self._connection.execute(
                "DELETE FROM policies WHERE recipient = ? AND name = ?", (record.name, policy_name)
            )
            detail["policy"] = policy_name
            return self._one(name)

    def _check_new(self, name: str, comment: str) -> None:
        check_name(name)
        check_comment(comment)
        if name.lower() in self._taken_names():
            raise RecipientExists(f"recipient {name!r} is in the configuration file")

    def _insert(
        self,
        name: str,
        detail: dict[str, str],
        *,
        shares: Sequence[str] = (),
        networks: Sequence[str] = (),
        comment: str = "",
        allow_absent: bool = False,
    ) -> None:
        """Insert a recipient without tokens, and describe it in the `detail` of the change."""
        if self._read(name):
            raise RecipientExists(f"recipient {name!r} exists already; rotate gives it a new token")
        self._connection.execute("INSERT INTO recipients VALUES (?, ?, ?)", (name, comment, self._now_ms()))
        self._insert_grants(name, shares, allow_absent=allow_absent)
        self._insert_networks(name, networks)
        detail |= {"shares": _listed(shares), "networks": " ".join(networks)}

    def _insert_policy(
        self, name: str, policy_name: str, policy: FederationPolicy, *, allow_absent: bool
    ) -> None:
        check_policy(policy_name, policy)
        known = None if self._known_issuers is None or allow_absent else {*self._known_issuers()}
        if known is not None and policy.issuer not in known:
            there = ", ".join(sorted(known)) or "none"
            raise RecipientError(
                f"issuer {policy.issuer!r} is not in gateway.oidc.issuers, which are: {there} (compared byte "
                "for byte); for an issuer that is configured later: --allow-absent (API: allowAbsent)"
            )
        if any(known_policy.name == policy_name for known_policy in self._one(name).policies):
            raise RecipientExists(f"recipient {name!r} has a policy {policy_name!r} already")
        self._connection.execute(
            "INSERT INTO policies VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                name,
                policy_name,
                policy.issuer,
                policy.subject_claim,
                policy.subject,
                json.dumps(sorted(policy.audiences)),
                json.dumps(dict(policy.claims)),
                self._now_ms(),
            ),
        )

    def rotate(
        self,
        name: str,
        *,
        old_expires_in_seconds: int = 0,
        expires_in_seconds: int | None = None,
        deliver: Callable[[IssuedToken], None] = _undelivered,
        committed: Callable[[], None] = _nothing,
    ) -> IssuedToken:
        """Issue a new token. Only the youngest old token stays valid, for at most `old_expires_in_seconds`.

        `deliver` and `committed` as for `add`: if the delivery fails, the old tokens stay.
        """
        _check_old_life(old_expires_in_seconds, "token")
        with self._change("rotateRecipientToken", name, lambda: deliver(issued), committed) as detail:
            record = self._one(name)
            if record.forbids_bearer_tokens:
                raise RecipientError(
                    f"bearer tokens are forbidden to {record.name!r}: rotate the secret of its client instead"
                )
            self._end_old("tokens", record.tokens, old_expires_in_seconds)
            detail["oldTokenExpiresInSeconds"] = str(old_expires_in_seconds)
            issued = self._issue(record.name, expires_in_seconds, detail)
            return issued

    def _end_old(self, table: str, old: Sequence[TokenRecord], expires_in_seconds: int) -> None:
        """End the live ones at once, but the youngest in that time."""
        now_ms = self._now_ms()
        youngest_first = sorted(old, key=lambda token: token.created_ms, reverse=True)
        live = [token for token in youngest_first if token.live(now_ms)]
        for rank, token in enumerate(live):
            self._shorten(table, token.sha256, now_ms + (expires_in_seconds * 1000 if rank == 0 else 0))

    def revoke(self, name: str, *, shares: Sequence[str] = ()) -> RecipientRecord:
        """End all tokens and client secrets of a recipient or, with `shares`, revoke only these grants."""
        action = "updateSharePermissions" if shares else "revokeRecipientTokens"
        with self._change(action, name) as detail:
            record = self._one(name)
            if shares:
                self._delete_grants(record, shares)
                detail["revoked"] = _listed(shares)
            else:
                for token in record.tokens:
                    self._shorten("tokens", token.sha256, self._now_ms())
                for client in record.clients:
                    for secret in client.secrets:
                        self._shorten("client_secrets", secret.sha256, self._now_ms())
            return self._one(name)

    def grant(
        self,
        name: str,
        shares: Sequence[str],
        *,
        networks: Sequence[str] | None = None,
        allow_absent: bool = False,
    ) -> RecipientRecord:
        """Grant shares; existing grants stay. `allow_absent` as for `add`.

        `networks` replace those of the recipient in the same change, as by `allow`; None: they stay.
        """
        with self._change("updateSharePermissions", name) as detail:
            record = self._one(name)
            self._insert_grants(record.name, shares, allow_absent=allow_absent)
            detail["granted"] = _listed(shares)
            if networks is not None:
                self._replace_networks(record.name, networks, detail)
            return self._one(name)

    def delete(self, name: str) -> RecipientRecord:
        """Delete a recipient with its tokens, clients, grants and networks, and return it.

        Its history stays.
        """
        with self._change("deleteRecipient", name) as detail:
            record = self._one(name)
            for table in OWNED_TABLES:
                self._connection.execute(f"DELETE FROM {table} WHERE recipient = ?", (record.name,))  # noqa: S608
            self._connection.execute("DELETE FROM recipients WHERE name = ?", (record.name,))
            detail |= {"tokens": str(len(record.tokens)), "shares": _listed(record.shares)}
            return record

    def purge(
        self, *, tokens_expired_for_seconds: int | None = None, history_older_than_seconds: int | None = None
    ) -> Purged:
        """Delete tokens, client secrets and changes that are older than the given ages; None: none."""
        with self._change("purgeRecipients", NOBODY) as detail:
            purged = Purged(
                self._delete_older("tokens", "expires_ms", tokens_expired_for_seconds)
                + self._delete_older("client_secrets", "expires_ms", tokens_expired_for_seconds),
                self._delete_older("history", "at_ms", history_older_than_seconds),
            )
            for key, seconds in (
                ("tokensExpiredForSeconds", tokens_expired_for_seconds),
                ("historyOlderThanSeconds", history_older_than_seconds),
            ):
                if seconds is not None:
                    detail[key] = str(seconds)
            detail |= {"tokens": str(purged.tokens), "changes": str(purged.changes)}
            return purged

    def _delete_older(self, table: str, column: str, seconds: int | None) -> int:
        if seconds is None:
            return 0
        if not 0 <= seconds <= MAX_LIFE_SECONDS:
            raise RecipientError(f"an age: 0 to {MAX_LIFE_SECONDS} seconds")
        before_ms = self._now_ms() - seconds * 1000
        return self._connection.execute(f"DELETE FROM {table} WHERE {column} <= ?", (before_ms,)).rowcount  # noqa: S608

    def allow(self, name: str, networks: Sequence[str]) -> RecipientRecord:
        """Replace the networks that a recipient may connect from; without networks any address is allowed."""
        with self._change("updateRecipient", name) as detail:
            record = self._one(name)
            self._replace_networks(record.name, networks, detail)
            return self._one(name)

    @contextmanager
    def _change(
        self,
        action: str,
        name: str,
        deliver: Callable[[], None] = _nothing,
        committed: Callable[[], None] = _nothing,
    ) -> Iterator[dict[str, str]]:
        detail: dict[str, str] = {}
        at_ms = self._now_ms()
        with transaction(self._connection, "BEGIN IMMEDIATE"):
            yield detail
            self._connection.execute(
                "INSERT INTO history VALUES (?, ?, ?, ?, ?)",
                (at_ms, self._actor, action, name, _pack(detail)),
            )
            change = Change(at_ms, self._actor, action, name, MappingProxyType(detail))
            self._before_change(change)
            deliver()
        committed()
        self._on_change(change)

    def _one(self, name: str) -> RecipientRecord:
        # SQLite accepts no surrogates. Earlier versions accepted control characters in names.
        records = () if _SURROGATE.search(name) else self._read(name)
        if not records:
            raise RecipientNotFound(f"no recipient {name!r} in the database")
        return records[0]

    def _read(self, name: str | None) -> tuple[RecipientRecord, ...]:
        def rows(statement: str) -> Iterator[tuple[Any, ...]]:
            return self._connection.execute(statement, (name,))

        tokens = _grouped(
            (recipient, TokenRecord(sha256, created_ms, expires_ms))
            for recipient, sha256, created_ms, expires_ms in rows(
                "SELECT recipient, sha256, created_ms, expires_ms FROM tokens"
                " WHERE ?1 IS NULL OR recipient = ?1 ORDER BY created_ms, sha256"
            )
        )
        shares = _grouped(
            rows(
                "SELECT DISTINCT recipient, casefold(share) AS share FROM grants"
                " WHERE ?1 IS NULL OR recipient = ?1 ORDER BY share"
            )
        )
        networks = _grouped(
            rows(
                "SELECT recipient, network FROM networks WHERE ?1 IS NULL OR recipient = ?1 ORDER BY network"
            )
        )
        policies = _grouped(
            (
                recipient,
                PolicyRecord(
                    policy_name, stored_policy(issuer, claim, subject, audiences, claims), created_ms
                ),
            )
            for recipient, policy_name, issuer, claim, subject, audiences, claims, created_ms in (
                rows("SELECT * FROM policies WHERE ?1 IS NULL OR recipient = ?1 ORDER BY name")
                if has_policies(self._connection)
                else ()
            )
        )
        knows_clients = has_clients(self._connection)
        clients = client_rows.read(self._connection, name) if knows_clients else {}
        forbidden = {who for (who,) in rows(_FORBIDDEN)} if knows_clients else set()
        return tuple(
            RecipientRecord(
                who,
                comment,
                created_ms,
                tokens.get(who, ()),
                shares.get(who, ()),
                networks.get(who, ()),
                policies.get(who, ()),
                clients.get(who, ()),
                who in forbidden,
            )
            for who, comment, created_ms in rows(
                "SELECT name, comment, created_ms FROM recipients WHERE ?1 IS NULL OR name = ?1 ORDER BY name"
            )
        )

    def _issue(self, name: str, expires_in_seconds: int | None, detail: dict[str, str]) -> IssuedToken:
        now_ms, token = self._now_ms(), secrets.token_urlsafe(TOKEN_BYTES)
        expires_ms = _end(now_ms, expires_in_seconds, "token")
        self._connection.execute(
            "INSERT INTO tokens VALUES (?, ?, ?, ?)", (token_hash(token).hex(), name, now_ms, expires_ms)
        )
        detail["tokenExpiresMs"] = _end_text(expires_ms)
        return IssuedToken(name, token, expires_ms)

    def _shorten(self, table: str, sha256: str, expires_ms: int) -> None:
        self._connection.execute(
            f"UPDATE {table} SET expires_ms = min(coalesce(expires_ms, ?1), ?1) WHERE sha256 = ?2",  # noqa: S608
            (expires_ms, sha256),
        )

    def _insert_grants(self, name: str, shares: Sequence[str], *, allow_absent: bool) -> None:
        known = None if self._known_shares is None or allow_absent else {*self._known_shares()}
        folded = {share.casefold() for share in known or ()}
        for share in shares:
            check_share(share)
            if known is not None and share != EVERY_SHARE and share.casefold() not in folded:
                there = ", ".join(sorted(known)) or "none"
                raise RecipientError(
                    f"share {share!r} is not in the configuration, whose shares are: {there}; to "
                    "grant a share before it is configured: --allow-absent (API: allowAbsent)"
                )
            self._connection.execute("INSERT OR IGNORE INTO grants VALUES (?, ?)", (name, share.casefold()))

    def _delete_grants(self, record: RecipientRecord, shares: Sequence[str]) -> None:
        # Earlier versions stored the share as spelled, possibly in several spellings.
        for folded, share in {share.casefold(): share for share in shares}.items():
            if _SURROGATE.search(share) or not self._delete_grant(record.name, folded):
                raise RecipientError(f"share {share!r} is not granted to {record.name!r}")

    def _delete_grant(self, name: str, folded: str) -> int:
        return self._connection.execute(
            "DELETE FROM grants WHERE recipient = ? AND casefold(share) = ?", (name, folded)
        ).rowcount

    def _replace_networks(self, name: str, networks: Sequence[str], detail: dict[str, str]) -> None:
        self._connection.execute("DELETE FROM networks WHERE recipient = ?", (name,))
        self._insert_networks(name, networks)
        detail["networks"] = " ".join(networks)

    def _insert_networks(self, name: str, networks: Sequence[str]) -> None:
        for text in networks:
            values = (name, str(check_network(text)))
            self._connection.execute("INSERT OR IGNORE INTO networks VALUES (?, ?)", values)


def _end(now_ms: int, expires_in_seconds: int | None, what: str) -> int | None:
    """Return the end of a new token or secret. Raises RecipientError."""
    if expires_in_seconds is None:
        return None
    if not 0 < expires_in_seconds <= MAX_LIFE_SECONDS:
        raise RecipientError(f"a {what}'s life: 1 to {MAX_LIFE_SECONDS} seconds")
    return now_ms + expires_in_seconds * 1000


def _end_text(expires_ms: int | None) -> str:
    return "never" if expires_ms is None else str(expires_ms)


def _check_old_life(seconds: int, what: str) -> None:
    if not 0 <= seconds <= MAX_LIFE_SECONDS:
        raise RecipientError(f"the old {what}'s remaining life: 0 to {MAX_LIFE_SECONDS} seconds")


def _listed(shares: Sequence[str]) -> str:
    """Return the names separated by blanks; a name with a blank is quoted."""
    return " ".join(json.dumps(share, ensure_ascii=False) if " " in share else share for share in shares)


def _grouped(rows: Iterable[tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    groups: dict[str, list[Any]] = {}
    for recipient, value in rows:
        groups.setdefault(recipient, []).append(value)
    return {recipient: tuple(values) for recipient, values in groups.items()}


def _pack(detail: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={value}" for key, value in detail.items())


def _unpack(text: str) -> Mapping[str, str]:
    return MappingProxyType(dict(line.split("=", 1) for line in text.split("\n") if line))
