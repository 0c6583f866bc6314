"""Operations on recipients in the database: their tokens, clients, grants, networks and policies.

In: the operations of `delta-gateway recipient` and of the admin API, one method each. Out: frozen records,
and the plain text of a new token once (only its SHA-256 is stored). A recipient has at most two valid tokens,
and no operation extends the life of an old one: operations read and write in one transaction, beside which no
other change is made.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Unpack

from sqlalchemy import Column, Connection, Table, delete, insert, select

from gateway.access import (
    activation_rows,
    client_rows,
    grant_rows,
    recipient_listing,
    recipient_rows,
    share_rows,
    token_rows,
)
from gateway.access.activation_rows import LinkKind
from gateway.access.authentication import token_hash
from gateway.access.federation import FederationPolicy
from gateway.access.recipient_listing import EndingRecipients, RecipientPage
from gateway.access.recipient_names import (
    check_comment,
    check_name,
    check_network,
    check_policy,
    check_share,
)
from gateway.access.recipient_records import (
    MAX_LIFE_SECONDS,
    MAX_LINK_SECONDS,
    Change,
    IssuedLink,
    IssuedSecret,
    IssuedToken,
    LinkInvalid,
    NewRecipient,
    Permission,
    Purged,
    RecipientError,
    RecipientExists,
    RecipientNotFound,
    RecipientRecord,
    RecipientUnreadable,
    TokenRecord,
)
from gateway.access.recorded_database import RecordedDatabase, Subject, nothing
from gateway.config.name_forms import name_form, new_name_problem
from gateway.config.recipients import EVERY_SHARE
from gateway.database.rows import all_rows, delete_orphans, is_text
from gateway.database.schema import (
    ACTIVATION_LINKS,
    CLIENT_SECRETS,
    CLIENTS,
    GRANTS,
    HISTORY,
    NETWORKS,
    POLICIES,
    RECIPIENTS,
    SHARES,
    TOKENS,
    name_key,
    recipient_key,
)

if TYPE_CHECKING:
    from gateway.access.stored_shares import StoredShares
    from gateway.config.database import DatabasePlace

log = logging.getLogger("gateway.recipients")

TOKEN_BYTES = 32
LOGGED_RECIPIENTS = 20
"""Maximum number of log lines about unreadable recipients for each list."""
KIND = "recipient"
"""Of subjects in the history."""
RECIPIENT_TABLES = (TOKENS, CLIENTS, CLIENT_SECRETS, NETWORKS, POLICIES, GRANTS, ACTIVATION_LINKS)
"""Those whose rows belong to a recipient."""
NOBODY = ""
"""The recipient in the record of a change without a single recipient."""

_NOT_STORABLE = re.compile(r"[\x00\ud800-\udfff]")
"""What the databases accept in no text."""


def _undelivered(_issued: IssuedToken) -> None:
    """Do nothing with a new token, which the caller gets."""


def _undelivered_secret(_issued: IssuedSecret) -> None:
    """Do nothing with a new secret, which the caller gets."""


class RecipientDatabase(RecordedDatabase):
    """One connection to the database, for operations on recipients."""

    def __init__(
        self,
        place: DatabasePlace,
        *,
        taken_names: Callable[[], frozenset[str]] = frozenset,
        known_shares: Callable[[], Iterable[str]] | None = None,
        known_issuers: Callable[[], Iterable[str]] | None = None,
        **options: Any,
    ) -> None:
        """Open the database; `options` are those of `RecordedDatabase`.

        `taken_names`: keys of recipients in the configuration file. `known_shares`: the shares that can be
        granted; `known_issuers`: the issuers that policies can name; None: any.
        """
        super().__init__(place, **options)
        self._taken_names = taken_names
        self._known_shares = known_shares
        self._known_issuers = known_issuers

    def list(self) -> tuple[RecipientRecord, ...]:
        """Return all recipients by name, from one consistent read.

        Unreadable ones, whose rows another program has written, are in the log.
        """
        with self.database.reading() as connection:
            found = recipient_rows.read(connection, None)
        for one in found.unreadable[:LOGGED_RECIPIENTS]:
            log.warning("recipient %s cannot be read and is refused: %s", ascii(one.key), one.reason)
        return found.records

    def show(self, name: str) -> RecipientRecord:
        """Return a recipient. Raises RecipientNotFound."""
        with self.database.reading() as connection:
            return _one(connection, name)

    def stored_shares(self) -> StoredShares:
        """Return the shares of the database."""
        with self.database.reading() as connection:
            return share_rows.read(connection, None)

    def page(self, text: str, others: Sequence[str], *, number: int, length: int) -> RecipientPage:
        """Return a page of the list of recipients, as `recipient_listing.page`."""
        if _NOT_STORABLE.search(text):
            # No recipient has it in its name, and PostgreSQL takes no such text.
            return RecipientPage((), {}, {}, 0, 1)
        with self.database.reading() as connection:
            return recipient_listing.page(connection, text, others, number=number, length=length)

    def ending(self, before_ms: int, most: int) -> tuple[int, EndingRecipients]:
        """Return the number of recipients, and those that `recipient_listing.ending` finds."""
        with self.database.reading() as connection:
            return recipient_listing.count(connection), recipient_listing.ending(connection, before_ms, most)

    def history(self, name: str | None, *, most: int | None = None) -> tuple[Change, ...]:
        """Return the changes of a recipient, also of a deleted one, oldest first; None: all changes.

        `most`: only so many of the last ones.
        """
        if name is not None and _NOT_STORABLE.search(name):
            return ()
        return self.changes(KIND, None if name is None else recipient_key(name), most=most)

    def add(
        self,
        name: str,
        *,
        expires_in_seconds: int | None = None,
        deliver: Callable[[IssuedToken], None] = _undelivered,
        committed: Callable[[], None] = nothing,
        **described: Unpack[NewRecipient],
    ) -> IssuedToken:
        """Add a recipient, and return its first token.

        `deliver` is called with the token just before the commit; if it raises, nothing is changed.
        `committed` is called right after the commit, before anything else that may fail.
        """
        self._check_new(name, described.get("comment", ""))
        with self._change("createRecipient", name, lambda: deliver(issued), committed) as (
            connection,
            detail,
        ):
            self._insert(connection, name, detail, **described)
            issued = self._issue(connection, name, expires_in_seconds, detail)
            return issued

    def add_federated(
        self,
        name: str,
        policies: Mapping[str, FederationPolicy],
        *,
        deliver: Callable[[], None] = nothing,
        committed: Callable[[], None] = nothing,
        **described: Unpack[NewRecipient],
    ) -> RecipientRecord:
        """Add a recipient that uses tokens of an identity provider, and none of this server.

        `deliver` and `committed` as for `add`.
        """
        self._check_new(name, described.get("comment", ""))
        with self._change("createRecipient", name, deliver, committed) as (connection, detail):
            self._insert(connection, name, detail, **described)
            allow_absent = described.get("allow_absent", False)
            for policy_name, policy in policies.items():
                self._insert_policy(connection, name, policy_name, policy, allow_absent=allow_absent)
            detail["policies"] = " ".join(policies)
            return _one(connection, name)

    def add_with_client(
        self,
        name: str,
        *,
        expires_in_seconds: int | None = None,
        deliver: Callable[[IssuedSecret], None] = _undelivered_secret,
        committed: Callable[[], None] = nothing,
        **described: Unpack[NewRecipient],
    ) -> IssuedSecret:
        """Add a recipient with an OAuth client and without a bearer token, which is forbidden to it.

        The arguments are those of `add`, for the client's secret.
        """
        self._check_new(name, described.get("comment", ""))
        with self._change("createRecipient", name, lambda: deliver(issued), committed) as (
            connection,
            detail,
        ):
            self._insert(connection, name, detail, **described)
            client_rows.forbid_bearer_tokens(connection, name, forbidden=True)
            detail["bearerTokensForbidden"] = "true"
            client_id = client_rows.insert_client(connection, _one(connection, name), self.now_ms())
            issued = self._issue_secret(connection, name, client_id, expires_in_seconds, detail)
            return issued

    def add_client(
        self,
        name: str,
        *,
        expires_in_seconds: int | None = None,
        deliver: Callable[[IssuedSecret], None] = _undelivered_secret,
        committed: Callable[[], None] = nothing,
    ) -> IssuedSecret:
        """Add an OAuth client to a recipient, and return its first secret. Raises RecipientNotFound.

        `deliver` and `committed` as for `add`.
        """
        with self._change("createClient", name, lambda: deliver(issued), committed) as (connection, detail):
            record = _one(connection, name)
            client_id = client_rows.insert_client(connection, record, self.now_ms())
            issued = self._issue_secret(connection, record.name, client_id, expires_in_seconds, detail)
            return issued

    def rotate_client(
        self,
        name: str,
        client_id: str | None = None,
        *,
        old_expires_in_seconds: int = 0,
        expires_in_seconds: int | None = None,
        deliver: Callable[[IssuedSecret], None] = _undelivered_secret,
        committed: Callable[[], None] = nothing,
    ) -> IssuedSecret:
        """Issue a new secret. Only the youngest old secret stays valid, as a token does for `rotate`.

        Without `client_id` the recipient must have one client. Raises RecipientNotFound.
        """
        _check_old_life(old_expires_in_seconds, "secret")
        with self._change("rotateClientSecret", name, lambda: deliver(issued), committed) as (
            connection,
            detail,
        ):
            record = _one(connection, name)
            client = client_rows.find(record, client_id)
            token_rows.end_old(
                connection,
                CLIENT_SECRETS,
                client.secrets,
                now_ms=self._earliest_ms(),
                expires_in_seconds=old_expires_in_seconds,
            )
            detail["oldSecretExpiresInSeconds"] = str(old_expires_in_seconds)
            issued = self._issue_secret(connection, record.name, client.id, expires_in_seconds, detail)
            return issued

    def remove_client(self, name: str, client_id: str | None = None) -> RecipientRecord:
        """Remove an OAuth client, whose access tokens end with it. Raises RecipientNotFound."""
        with self._change("deleteClient", name) as (connection, detail):
            client = client_rows.find(_one(connection, name), client_id)
            client_rows.remove(connection, client.id)
            detail["client"] = client.id
            return _one(connection, name)

    def forbid_bearer_tokens(self, name: str, *, forbidden: bool) -> RecipientRecord:
        """Refuse the bearer tokens of a recipient, or accept those that have not ended again."""
        with self._change("updateRecipient", name) as (connection, detail):
            record = _one(connection, name)
            client_rows.forbid_bearer_tokens(connection, record.name, forbidden=forbidden)
            detail["bearerTokensForbidden"] = "true" if forbidden else "false"
            return _one(connection, name)

    def _issue_secret(
        self,
        connection: Connection,
        name: str,
        client_id: str,
        expires_in_seconds: int | None,
        detail: dict[str, str],
    ) -> IssuedSecret:
        now_ms = self.now_ms()
        expires_ms = _end(now_ms, expires_in_seconds, "secret")
        secret = secrets.token_urlsafe(TOKEN_BYTES)
        stored = TokenRecord(token_hash(secret).hex(), now_ms, expires_ms)
        client_rows.insert_secret(connection, name, client_id, stored)
        detail |= {"client": client_id, "secretExpiresMs": _end_text(expires_ms)}
        return IssuedSecret(name, client_id, secret, expires_ms)

    def add_with_link(
        self,
        name: str,
        *,
        valid_for_seconds: int,
        kind: LinkKind = "token",
        expires_in_seconds: int | None = None,
        **described: Unpack[NewRecipient],
    ) -> IssuedLink:
        """Add a recipient without a token, and return a link that gives its first one.

        `valid_for_seconds` is the life of the link, `expires_in_seconds` that of the token or secret that it
        gives. A recipient of `kind` "client" may use no bearer tokens.
        """
        self._check_new(name, described.get("comment", ""))
        with self._change("createRecipient", name) as (connection, detail):
            self._insert(connection, name, detail, **described)
            if kind == "client":
                client_rows.forbid_bearer_tokens(connection, name, forbidden=True)
                detail["bearerTokensForbidden"] = "true"
            return self._link(
                connection,
                name,
                detail,
                valid_for_seconds=valid_for_seconds,
                kind=kind,
                expires_in_seconds=expires_in_seconds,
            )

    def add_link(
        self, name: str, *, valid_for_seconds: int, expires_in_seconds: int | None = None
    ) -> IssuedLink:
        """Return a link that gives a recipient another token, or another client where tokens are forbidden.

        Unused links of the recipient end. Raises RecipientNotFound.
        """
        with self._change("createActivationLink", name) as (connection, detail):
            record = _one(connection, name)
            kind: LinkKind = "client" if record.forbids_bearer_tokens else "token"
            activation_rows.delete_open(connection, record.name)
            return self._link(
                connection,
                record.name,
                detail,
                valid_for_seconds=valid_for_seconds,
                kind=kind,
                expires_in_seconds=expires_in_seconds,
            )

    def activate(self, code: str) -> IssuedToken | IssuedSecret:
        """Use a link: issue its token, or its client with a secret. Raises LinkInvalid.

        The youngest token of the recipient stays valid, as for a rotation. Where bearer tokens are forbidden,
        the link gives a client.
        """
        with self.database.reading() as connection:
            link = activation_rows.find(connection, code, self.now_ms())
        if link is None:
            raise LinkInvalid
        with self._change("activateRecipient", link.recipient) as (connection, detail):
            if not activation_rows.use(connection, link, self.now_ms()):
                raise LinkInvalid
            detail["link"] = activation_rows.link_id(link.sha256)
            record = _one(connection, link.recipient)
            # Bearer tokens may have been forbidden since the link was made.
            if link.kind == "client" or record.forbids_bearer_tokens:
                client_id = client_rows.insert_client(connection, record, self.now_ms())
                return self._issue_secret(connection, record.name, client_id, link.lifetime_seconds, detail)
            token_rows.end_old(
                connection,
                TOKENS,
                record.tokens,
                now_ms=self._earliest_ms(),
                expires_in_seconds=MAX_LIFE_SECONDS,
            )
            return self._issue(connection, record.name, link.lifetime_seconds, detail)

    def _link(
        self,
        connection: Connection,
        name: str,
        detail: dict[str, str],
        *,
        valid_for_seconds: int,
        kind: LinkKind,
        expires_in_seconds: int | None,
    ) -> IssuedLink:
        if not 0 < valid_for_seconds <= MAX_LINK_SECONDS:
            raise RecipientError(f"a link's life: expected 1 to {MAX_LINK_SECONDS} seconds")
        now_ms, code = self.now_ms(), secrets.token_urlsafe(TOKEN_BYTES)
        _end(now_ms, expires_in_seconds, "token")
        expires_ms = now_ms + valid_for_seconds * 1000
        sha256 = activation_rows.insert_link(
            connection,
            name,
            code,
            kind=kind,
            now_ms=now_ms,
            expires_ms=expires_ms,
            lifetime_seconds=expires_in_seconds,
        )
        detail |= {"link": activation_rows.link_id(sha256), "linkExpiresMs": str(expires_ms)}
        return IssuedLink(name, code, expires_ms)

    def add_policy(
        self, name: str, policy_name: str, policy: FederationPolicy, *, allow_absent: bool = False
    ) -> RecipientRecord:
        """Add a federation policy to a recipient. Raises RecipientNotFound, RecipientExists."""
        with self._change("createFederationPolicy", name) as (connection, detail):
            record = _one(connection, name)
            self._insert_policy(connection, record.name, policy_name, policy, allow_absent=allow_absent)
            detail |= {"policy": policy_name, "issuer": policy.issuer}
            return _one(connection, name)

    def remove_policy(self, name: str, policy_name: str) -> RecipientRecord:
        """Remove a federation policy of a recipient. Raises RecipientNotFound."""
        with self._change("deleteFederationPolicy", name) as (connection, detail):
            record = _one(connection, name)
            if all(policy.name != policy_name for policy in record.policies):
                raise RecipientNotFound(f"recipient {record.name!r} has no policy {policy_name!r}")
            connection.execute(
                delete(POLICIES).where(
                    POLICIES.c.recipient == recipient_key(name), POLICIES.c.name == policy_name
                )
            )
            detail["policy"] = policy_name
            return _one(connection, name)

    def _check_new(self, name: str, comment: str) -> None:
        check_name(name)
        problem = new_name_problem(name)
        if problem is not None:
            raise RecipientError(f"recipient name {name!a}: {problem}")
        check_comment(comment)
        if name.lower() in self._taken_names():
            raise RecipientExists(f"recipient {name!r} is in the configuration file")

    def _check_distinct(self, connection: Connection, name: str) -> None:
        """Raise RecipientExists for a name that is easily taken for that of another recipient."""
        form = name_form(name)
        stored = (row.name for row in all_rows(connection, select(RECIPIENTS.c.name)) if is_text(row.name))
        for other in chain(stored, self._taken_names()):
            if name_form(other) == form:
                raise RecipientExists(f"recipient name {name!a} is easily taken for {other!a}, which exists")

    def _insert(
        self,
        connection: Connection,
        name: str,
        detail: dict[str, str],
        *,
        shares: Sequence[str] = (),
        networks: Sequence[str] = (),
        comment: str = "",
        allow_absent: bool = False,
    ) -> None:
        """Insert a recipient without tokens, and describe it in the `detail` of the change."""
        key = recipient_key(name)
        found = recipient_rows.read(connection, [key])
        if found.records or found.unreadable:
            raise RecipientExists(f"recipient {name!r} exists already; rotate gives it a new token")
        self._check_distinct(connection, name)
        delete_orphans(connection, {table: table.c.recipient == key for table in RECIPIENT_TABLES})
        connection.execute(
            insert(RECIPIENTS).values(
                key=key,
                name=name,
                comment=comment,
                created_ms=self.now_ms(),
                properties="{}",
                forbids_bearer_tokens=False,
            )
        )
        self._check_shares(shares, allow_absent=allow_absent)
        grant_rows.insert_shares(connection, _one(connection, name), shares)
        _insert_networks(connection, name, networks)
        detail |= {"shares": _listed(shares), "networks": " ".join(networks)}

    def _insert_policy(
        self,
        connection: Connection,
        name: str,
        policy_name: str,
        policy: FederationPolicy,
        *,
        allow_absent: bool,
    ) -> None:
        check_policy(policy_name, policy)
        known = None if self._known_issuers is None or allow_absent else {*self._known_issuers()}
        if known is not None and policy.issuer not in known:
            there = ", ".join(sorted(known)) or "none"
            raise RecipientError(
                f"issuer {policy.issuer!r} is not in gateway.oidc.issuers, which are: {there} (compared byte "
                "for byte); for an issuer that is configured later: --allow-absent (API: allowAbsent)"
            )
        if any(known_policy.name == policy_name for known_policy in _one(connection, name).policies):
            raise RecipientExists(f"recipient {name!r} has a policy {policy_name!r} already")
        connection.execute(
            insert(POLICIES).values(
                recipient=recipient_key(name),
                name=policy_name,
                issuer=policy.issuer,
                subject_claim=policy.subject_claim,
                subject=policy.subject,
                audiences=json.dumps(sorted(policy.audiences)),
                claims=json.dumps(dict(policy.claims)),
                created_ms=self.now_ms(),
            )
        )

    def rotate(
        self,
        name: str,
        *,
        old_expires_in_seconds: int = 0,
        expires_in_seconds: int | None = None,
        deliver: Callable[[IssuedToken], None] = _undelivered,
        committed: Callable[[], None] = nothing,
    ) -> IssuedToken:
        """Issue a new token. Only the youngest old token stays valid, for at most `old_expires_in_seconds`.

        `deliver` and `committed` as for `add`: if the delivery fails, the old tokens stay.
        """
        _check_old_life(old_expires_in_seconds, "token")
        with self._change("rotateRecipientToken", name, lambda: deliver(issued), committed) as (
            connection,
            detail,
        ):
            record = _one(connection, name)
            if record.forbids_bearer_tokens:
                raise RecipientError(
                    f"bearer tokens are forbidden to {record.name!r}: rotate the secret of its client instead"
                )
            token_rows.end_old(
                connection,
                TOKENS,
                record.tokens,
                now_ms=self._earliest_ms(),
                expires_in_seconds=old_expires_in_seconds,
            )
            detail["oldTokenExpiresInSeconds"] = str(old_expires_in_seconds)
            issued = self._issue(connection, record.name, expires_in_seconds, detail)
            return issued

    def revoke(self, name: str, *, shares: Sequence[str] = (), all_parts: bool = False) -> RecipientRecord:
        """End all tokens, client secrets and unused links of a recipient; with `shares` only these grants.

        `all_parts`: those for parts of the shares and with conditions, too.
        """
        action = "updateSharePermissions" if shares else "revokeRecipientTokens"
        with self._change(action, name) as (connection, detail):
            record = _one(connection, name)
            if shares:
                grant_rows.delete_shares(connection, record, shares, all_parts=all_parts)
                detail["revoked"] = _listed(shares)
                if all_parts:
                    detail["allParts"] = "true"
            else:
                activation_rows.delete_open(connection, record.name)
                token_rows.end_all(connection, record.name)
            return _one(connection, name)

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
        with self._change("updateSharePermissions", name) as (connection, detail):
            record = _one(connection, name)
            self._check_shares(shares, allow_absent=allow_absent)
            grant_rows.insert_shares(connection, record, shares)
            detail["granted"] = _listed(shares)
            if networks is not None:
                _replace_networks(connection, record.name, networks, detail)
            return _one(connection, name)

    def update_permissions(self, share: str, changes: Sequence[Permission]) -> None:
        """Grant a share to recipients, or take it back, in the order of the changes: all of them or none.

        Each recipient has its own entry in the history. Raises RecipientNotFound, and RecipientError for a
        share that is unknown, or taken back from a recipient without it.
        """
        of_one: dict[str, list[Permission]] = {}
        for change in changes:
            _check_storable(change.recipient)
            of_one.setdefault(recipient_key(change.recipient), []).append(change)
        subjects = [Subject(KIND, some[0].recipient, key) for key, some in of_one.items()]
        with self.change_several("updateSharePermissions", subjects) as (connection, details):
            self._check_shares([share], allow_absent=False)
            for detail, some in zip(details, of_one.values(), strict=True):
                for change in some:
                    record = _one(connection, change.recipient)
                    if change.is_granted:
                        grant_rows.insert_shares(connection, record, [share])
                    else:
                        grant_rows.delete_shares(connection, record, [share])
                    detail["granted" if change.is_granted else "revoked"] = _listed([share])

    def delete(self, name: str) -> RecipientRecord:
        """Delete a recipient with its tokens, clients, grants and networks, and return it.

        Its history stays. An unreadable recipient is deleted, too; of that the name is returned.
        """
        with self._change("deleteRecipient", name) as (connection, detail):
            try:
                record = _one(connection, name)
            except RecipientUnreadable:
                record = RecipientRecord(name, "", 0, (), (), ())
            # Its rows in other tables are deleted with it.
            connection.execute(delete(RECIPIENTS).where(RECIPIENTS.c.key == recipient_key(name)))
            detail |= {"tokens": str(len(record.tokens)), "shares": _listed(record.shares)}
            return record

    def purge(
        self, *, tokens_expired_for_seconds: int | None = None, history_older_than_seconds: int | None = None
    ) -> Purged:
        """Delete tokens, client secrets and changes that are older than the given ages; None: none.

        Activation links that ended are deleted with the tokens.
        """
        with self._change("purgeRecipients", NOBODY) as (connection, detail):
            self._delete_older(
                connection, ACTIVATION_LINKS, ACTIVATION_LINKS.c.expires_ms, tokens_expired_for_seconds
            )
            purged = Purged(
                self._delete_older(connection, TOKENS, TOKENS.c.expires_ms, tokens_expired_for_seconds)
                + self._delete_older(
                    connection, CLIENT_SECRETS, CLIENT_SECRETS.c.expires_ms, tokens_expired_for_seconds
                ),
                self._delete_older(connection, HISTORY, HISTORY.c.at_ms, history_older_than_seconds),
            )
            for key, seconds in (
                ("tokensExpiredForSeconds", tokens_expired_for_seconds),
                ("historyOlderThanSeconds", history_older_than_seconds),
            ):
                if seconds is not None:
                    detail[key] = str(seconds)
            detail |= {"tokens": str(purged.tokens), "changes": str(purged.changes)}
            return purged

    def _delete_older(
        self, connection: Connection, table: Table, column: Column[int], seconds: int | None
    ) -> int:
        if seconds is None:
            return 0
        if not 0 <= seconds <= MAX_LIFE_SECONDS:
            raise RecipientError(f"an age: expected 0 to {MAX_LIFE_SECONDS} seconds")
        before_ms = self.now_ms() - seconds * 1000
        return connection.execute(delete(table).where(column <= before_ms)).rowcount

    def allow(self, name: str, networks: Sequence[str]) -> RecipientRecord:
        """Replace the networks that a recipient may connect from; without networks any address is allowed."""
        with self._change("updateRecipient", name) as (connection, detail):
            record = _one(connection, name)
            _replace_networks(connection, record.name, networks, detail)
            return _one(connection, name)

    @contextmanager
    def _change(
        self,
        action: str,
        name: str,
        deliver: Callable[[], None] = nothing,
        committed: Callable[[], None] = nothing,
    ) -> Iterator[tuple[Connection, dict[str, str]]]:
        _check_storable(name)
        with self.change(action, Subject(KIND, name, recipient_key(name)), deliver, committed) as changed:
            yield changed

    def _earliest_ms(self) -> int:
        """Return the time from which an old token's remaining life counts.

        The clock of an operator's machine may be ahead: by the clocks of servers that life would be longer.
        """
        server_ms = self.database.server_now_ms()
        return self.now_ms() if server_ms is None else min(self.now_ms(), server_ms)

    def _issue(
        self, connection: Connection, name: str, expires_in_seconds: int | None, detail: dict[str, str]
    ) -> IssuedToken:
        now_ms, token = self.now_ms(), secrets.token_urlsafe(TOKEN_BYTES)
        expires_ms = _end(now_ms, expires_in_seconds, "token")
        stored = TokenRecord(token_hash(token).hex(), now_ms, expires_ms)
        token_rows.insert_token(connection, name, stored)
        detail["tokenExpiresMs"] = _end_text(expires_ms)
        return IssuedToken(name, token, expires_ms)

    def _check_shares(self, shares: Sequence[str], *, allow_absent: bool) -> None:
        """Check the names of shares to grant. Raises RecipientError."""
        known = None
        if self._known_shares is not None and not allow_absent:
            known = {*self._known_shares(), *self.database.connection.scalars(select(SHARES.c.name))}
        folded = {*map(name_key, known or ())}
        for share in shares:
            check_share(share)
            if known is not None and share != EVERY_SHARE and name_key(share) not in folded:
                there = ", ".join(sorted(known)) or "none"
                raise RecipientError(
                    f"share {share!r} is not in the configuration, whose shares are: {there}; to "
                    "grant a share before it is configured: --allow-absent (API: allowAbsent)"
                )


def _check_storable(name: str) -> None:
    """Raise RecipientNotFound for a name that no recipient can have: earlier releases accepted others."""
    if _NOT_STORABLE.search(name):
        raise RecipientNotFound(f"no recipient {name!r} in the database")


def _one(connection: Connection, name: str) -> RecipientRecord:
    _check_storable(name)
    return recipient_rows.read_one(connection, name)


def _replace_networks(
    connection: Connection, name: str, networks: Sequence[str], detail: dict[str, str]
) -> None:
    connection.execute(delete(NETWORKS).where(NETWORKS.c.recipient == recipient_key(name)))
    _insert_networks(connection, name, networks)
    detail["networks"] = " ".join(networks)


def _insert_networks(connection: Connection, name: str, networks: Sequence[str]) -> None:
    for network in dict.fromkeys(str(check_network(text)) for text in networks):
        connection.execute(insert(NETWORKS).values(recipient=recipient_key(name), network=network))


def _end(now_ms: int, expires_in_seconds: int | None, what: str) -> int | None:
    """Return the end of a new token or secret. Raises RecipientError."""
    if expires_in_seconds is None:
        return None
    if not 0 < expires_in_seconds <= MAX_LIFE_SECONDS:
        raise RecipientError(f"a {what}'s life: expected 1 to {MAX_LIFE_SECONDS} seconds")
    return now_ms + expires_in_seconds * 1000


def _end_text(expires_ms: int | None) -> str:
    return "never" if expires_ms is None else str(expires_ms)


def _check_old_life(seconds: int, what: str) -> None:
    if not 0 <= seconds <= MAX_LIFE_SECONDS:
        raise RecipientError(f"the old {what}'s remaining life: expected 0 to {MAX_LIFE_SECONDS} seconds")


def _listed(shares: Sequence[str]) -> str:
    """Return the names separated by blanks; a name with a blank is quoted."""
    return " ".join(json.dumps(share, ensure_ascii=False) if " " in share else share for share in shares)
