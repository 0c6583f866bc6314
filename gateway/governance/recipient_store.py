"""Operations on recipients in the database: their tokens, clients, grants, networks and policies.

In: the operations of `delta-gateway recipient` and of the admin API, one method each. Out: frozen records,
and the plain text of a new token once (only its SHA-256 is stored). A recipient has at most two valid tokens,
and no operation extends the life of an old one: operations read and write in one transaction, beside which no
other change is made.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar, Unpack, overload

from sqlalchemy import Column, Connection, delete, select

from gateway.authentication.policies import TokenPolicy
from gateway.catalog.stored_shares import StoredShares
from gateway.database.schema import (
    ACTIVATION_LINKS,
    CLIENT_SECRETS,
    CLIENTS,
    HISTORY,
    NETWORKS,
    POLICIES,
    RECIPIENTS,
    SHARES,
    TOKENS,
    recipient_key,
)
from gateway.governance import recipient_listing, rows, share_rows
from gateway.governance.credentials import (
    FirstCredential,
    FurtherCredential,
    NewToken,
    Policies,
    find_client,
    forbid_bearer_tokens,
)
from gateway.governance.recipient_changes import KIND, RecipientChanges, listed
from gateway.governance.recipient_listing import EndingRecipients, Rank, RecipientPage
from gateway.governance.recipient_names import check_policy
from gateway.governance.recipient_records import (
    MAX_LIFE_SECONDS,
    TEXTS,
    ChangeRecord,
    IssuedSecret,
    IssuedToken,
    LinkInvalid,
    NewRecipient,
    Permission,
    PurgedRows,
    RecipientError,
    RecipientExists,
    RecipientNotFound,
    RecipientRecord,
    RecipientUnreadable,
)
from gateway.governance.recorded_database import Subject
from gateway.governance.rows import OpenLink, ReadRecipients

log = logging.getLogger("gateway.recipients")

T = TypeVar("T")

LOGGED_RECIPIENTS = 20
"""Maximum number of log lines about unreadable recipients for each list."""
FIRST_TOKEN = NewToken()
"""Without an end."""
NOBODY = ""
"""The recipient in the record of a change without a single recipient."""


class RecipientDatabase(RecipientChanges):
    """One connection to the database, for operations on recipients."""

    def list(self) -> tuple[RecipientRecord, ...]:
        """Return all recipients by name, from one consistent read.

        Unreadable ones, whose rows another program has written, are in the log.
        """
        reading = self.read_all()
        for key, reason in islice(reading.unreadable.items(), LOGGED_RECIPIENTS):
            log.warning("recipient %s cannot be read and is refused: %s", ascii(key), reason)
        return reading.records

    def read_all(self) -> ReadRecipients:
        """Return all recipients by name, and why others cannot be read, from one consistent read."""
        with self.database.reading() as connection:
            return rows.read(connection, None)

    def check_unchanged(self, records: Iterable[RecipientRecord]) -> None:
        """Raise RecipientError where someone else has changed what a record says; tokens may have changed.

        Call it within `together`, whose changes then begin at these records.
        """
        expected = {recipient_key(record.name): _described(record) for record in records}
        with self.together() as whole:
            records = rows.read(whole.connection, [*expected]).records
        for record in records:
            if expected[recipient_key(record.name)] == _described(record):
                del expected[recipient_key(record.name)]
        for record in expected.values():
            raise RecipientError(f"recipient {record.name!r} was changed meanwhile; run the command again")

    def show(self, name: str) -> RecipientRecord:
        """Return a recipient. Raises RecipientNotFound."""
        with self.database.reading() as connection:
            return rows.read_one(connection, name)

    def is_empty(self) -> bool:
        """Return whether there are no recipients and no shares."""
        with self.database.reading() as connection:
            queries = (select(table.c.created_ms).limit(1) for table in (RECIPIENTS, SHARES))
            return all(connection.execute(query).first() is None for query in queries)

    def stored_shares(self) -> StoredShares:
        with self.database.reading() as connection:
            return share_rows.read(connection, None)

    def page(self, text: str, elsewhere: Sequence[str], *, number: int, length: int) -> RecipientPage:
        """Return a page of the list of recipients, as `recipient_listing.page`."""
        with self.database.reading() as connection:
            return recipient_listing.page(connection, text, elsewhere, number=number, length=length)

    def ranked_page(
        self, text: str, elsewhere: Sequence[str], rank: Rank, *, number: int, length: int
    ) -> RecipientPage:
        """Return a page of some recipients in another order, as `recipient_listing.ranked_page`."""
        with self.database.reading() as connection:
            return recipient_listing.ranked_page(
                connection, text, elsewhere, rank, number=number, length=length
            )

    def ending(self, before_ms: int, most: int | None = None) -> tuple[int, EndingRecipients]:
        """Return the number of recipients, and those that `recipient_listing.ending` finds."""
        with self.database.reading() as connection:
            return recipient_listing.count(connection), recipient_listing.ending(connection, before_ms, most)

    def history(self, name: str | None, *, most: int | None = None) -> tuple[ChangeRecord, ...]:
        """Return the changes of a recipient, also of a deleted one, oldest first; None: all changes.

        `most`: the number of the last changes to return.
        """
        return self.changes(KIND, None if name is None else recipient_key(name), most=most)

    @overload
    def add(self, name: str, **described: Unpack[NewRecipient]) -> IssuedToken: ...
    @overload
    def add(self, name: str, credential: FirstCredential[T], **described: Unpack[NewRecipient]) -> T: ...
    def add(
        self, name: str, credential: FirstCredential[Any] = FIRST_TOKEN, **described: Unpack[NewRecipient]
    ) -> Any:
        """Add a recipient, and return what it is given."""
        return self.add_all({name: (credential, described)})[0]

    def add_all(self, added: Mapping[str, tuple[FirstCredential[T], NewRecipient]]) -> tuple[T, ...]:
        """Do the same for several recipients, with the credential and the description of each."""
        for name, (credential, described) in added.items():
            self._check_new(name, described)
            if isinstance(credential, Policies):
                for policy_name, policy in credential.policies.items():
                    self._check_policy(policy_name, policy, allow_absent=described.get("allow_absent", False))
        subjects = [Subject(KIND, name, recipient_key(name)) for name in added]
        with self.change_several("createRecipient", subjects) as (connection, details):
            self._insert_all(connection, {name: described for name, (_, described) in added.items()}, details)
            policies: list[dict[str, Any]] = []
            given = []
            for (name, (credential, _)), detail in zip(added.items(), details, strict=True):
                new = RecipientRecord(name, "", 0, (), (), ())
                given.append(credential.first(self._issuing(connection, new, detail, policies)))
            rows.insert(connection, {POLICIES: policies})
            return tuple(given)

    def issue(self, name: str, credential: FurtherCredential[T]) -> T:
        """Give a credential to a known recipient, and return it. Raises RecipientNotFound."""
        with self.changing(credential.action, name) as (connection, detail, record):
            return credential.further(self._issuing(connection, record, detail, []))

    def activate(self, code: str, secret: str | None = None) -> IssuedToken | IssuedSecret:
        """Use a link: issue its token, or its client with a secret. Raises LinkInvalid.

        `secret` is what the link gives; None: a random one. The same call within a minute returns the same,
        as for a form that is sent twice. The youngest token of the recipient stays valid, as for a rotation.
        Where bearer tokens are forbidden, the link gives a client.
        """
        with self.database.reading() as connection:
            link = rows.open_link(connection, code, self.now_ms())
        issued = None if link is None else self._use(link, secret)
        if issued is None and secret is not None:
            with self.database.reading() as connection:
                issued = rows.given_by_link(connection, code, secret, self.now_ms())
        if issued is None:
            raise LinkInvalid
        return issued

    def _use(self, link: OpenLink, secret: str | None) -> IssuedToken | IssuedSecret | None:
        """Return what a link gives; None for one that another request has used first."""
        with suppress(LinkInvalid), self._change("activateRecipient", link.recipient) as (connection, detail):
            if not rows.use_link(connection, link, self.now_ms()):
                raise LinkInvalid
            detail["link"] = link.id
            record = rows.read_one(connection, link.recipient)
            self._check_served(record)
            issuing = self._issuing(connection, record, detail, [])
            # Bearer tokens may have been forbidden since the link was made.
            if link.kind == "client" or record.forbids_bearer_tokens:
                return issuing.client(link.lifetime_seconds, secret)
            issuing.end_old(TOKENS, record.tokens, MAX_LIFE_SECONDS)
            return issuing.token(link.lifetime_seconds, secret)
        return None

    def remove_client(self, name: str, client_id: str | None = None) -> RecipientRecord:
        """Remove an OAuth client, whose access tokens end with it. Raises RecipientNotFound."""
        with self.changing("deleteClient", name) as (connection, detail, record):
            client = find_client(record, client_id)
            # Its secrets are deleted with it.
            connection.execute(delete(CLIENTS).where(CLIENTS.c.id == client.id))
            detail["client"] = client.id
            return rows.read_one(connection, name)

    def forbid_bearer_tokens(self, name: str, *, forbidden: bool) -> RecipientRecord:
        """Refuse the bearer tokens of a recipient, or accept those that have not ended again."""
        with self.changing("updateRecipient", name) as (connection, detail, record):
            forbid_bearer_tokens(connection, record.name, detail, forbidden=forbidden)
            return rows.read_one(connection, name)

    def add_policy(
        self, name: str, policy_name: str, policy: TokenPolicy, *, allow_absent: bool = False
    ) -> RecipientRecord:
        """Add a federation policy to a recipient. Raises RecipientNotFound, RecipientExists."""
        with self.changing("createFederationPolicy", name) as (connection, detail, record):
            self._check_policy(policy_name, policy, allow_absent=allow_absent)
            if any(known_policy.name == policy_name for known_policy in record.policies):
                raise RecipientExists(f"recipient {name!r} has a policy {policy_name!r} already")
            row = rows.policy_row(record.name, policy_name, policy, self.now_ms())
            rows.insert(connection, {POLICIES: [row]})
            detail |= {"policy": policy_name, "issuer": policy.issuer}
            return rows.read_one(connection, name)

    def remove_policy(self, name: str, policy_name: str) -> RecipientRecord:
        """Remove a federation policy of a recipient. Raises RecipientNotFound."""
        with self.changing("deleteFederationPolicy", name) as (connection, detail, record):
            if all(policy.name != policy_name for policy in record.policies):
                raise RecipientNotFound(f"recipient {record.name!r} has no policy {policy_name!r}")
            rows.delete(connection, POLICIES, name, POLICIES.c.name == policy_name)
            detail["policy"] = policy_name
            return rows.read_one(connection, name)

    def _check_policy(self, policy_name: str, policy: TokenPolicy, *, allow_absent: bool) -> None:
        check_policy(policy_name, policy)
        known = None if self._known_issuers is None or allow_absent else {*self._known_issuers()}
        if known is not None and policy.issuer not in known:
            there = ", ".join(sorted(known)) or "none"
            raise RecipientError(
                f"issuer {policy.issuer!r} is not in gateway.oidc.issuers, which are: {there} (compared byte "
                "for byte); for an issuer that is configured later: --allow-absent (API: allowAbsent)"
            )

    def revoke(self, name: str, *, shares: Sequence[str] = (), all_parts: bool = False) -> RecipientRecord:
        """End all tokens, client secrets and unused links of a recipient; with `shares` only these grants.

        `all_parts`: those for parts of the shares and with conditions, too.
        """
        action = "updateSharePermissions" if shares else "revokeRecipientTokens"
        with self.changing(action, name) as (connection, detail, record):
            if shares:
                rows.revoke_shares(connection, record, shares, all_parts=all_parts)
                detail["revoked"] = listed(shares)
                if all_parts:
                    detail["allParts"] = "true"
            else:
                rows.delete_open_links(connection, name)
                for table in (TOKENS, CLIENT_SECRETS):
                    rows.delete(connection, table, name)
            return rows.read_one(connection, name)

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
        with self.changing("updateSharePermissions", name) as (connection, detail, record):
            self.check_shares(shares, allow_absent=allow_absent)
            rows.grant_shares(connection, record, shares)
            detail["granted"] = listed(shares)
            if networks is not None:
                _replace_networks(connection, record.name, networks, detail)
            return rows.read_one(connection, name)

    def update_permissions(self, share: str, changes: Sequence[Permission]) -> None:
        """Grant a share to recipients, or take it back, in the order of the changes: all of them or none.

        Each recipient has its own entry in the history. Raises RecipientNotFound, and RecipientError for a
        share that is unknown, or taken back from a recipient without it.
        """
        of_one: dict[str, list[Permission]] = {}
        for change in changes:
            rows.check_storable(change.recipient)
            of_one.setdefault(recipient_key(change.recipient), []).append(change)
        subjects = [Subject(KIND, some[0].recipient, key) for key, some in of_one.items()]
        with self.change_several("updateSharePermissions", subjects) as (connection, details):
            self.check_shares([share], allow_absent=False)
            for detail, some in zip(details, of_one.values(), strict=True):
                for change in some:
                    record = rows.read_one(connection, change.recipient)
                    self._check_served(record)
                    if change.is_granted:
                        rows.grant_shares(connection, record, [share])
                    else:
                        rows.revoke_shares(connection, record, [share])
                    detail["granted" if change.is_granted else "revoked"] = listed([share])

    def delete(self, name: str) -> RecipientRecord:
        """Delete a recipient with its tokens, clients, grants and networks, and return it.

        Its history stays. An unreadable recipient is deleted, too; of that the name is returned.
        """
        with self._change("deleteRecipient", name) as (connection, detail):
            try:
                record = rows.read_one(connection, name)
            except RecipientUnreadable:
                record = RecipientRecord(name, "", 0, (), (), ())
            # Its rows in other tables are deleted with it.
            connection.execute(delete(RECIPIENTS).where(RECIPIENTS.c.key == recipient_key(name)))
            detail |= {"tokens": str(len(record.tokens)), "shares": listed(record.shares)}
            return record

    def purge(
        self, *, tokens_expired_for_seconds: int | None = None, history_older_than_seconds: int | None = None
    ) -> PurgedRows:
        """Delete tokens, client secrets and changes that are older than the given ages; None: none.

        Activation links that ended are deleted with the tokens.
        """
        with self._change("purgeRecipients", NOBODY) as (connection, detail):
            self._delete_older(connection, ACTIVATION_LINKS.c.expires_ms, tokens_expired_for_seconds)
            purged = PurgedRows(
                self._delete_older(connection, TOKENS.c.expires_ms, tokens_expired_for_seconds)
                + self._delete_older(connection, CLIENT_SECRETS.c.expires_ms, tokens_expired_for_seconds),
                self._delete_older(connection, HISTORY.c.at_ms, history_older_than_seconds),
            )
            for key, seconds in (
                ("tokensExpiredForSeconds", tokens_expired_for_seconds),
                ("historyOlderThanSeconds", history_older_than_seconds),
            ):
                if seconds is not None:
                    detail[key] = str(seconds)
            detail |= {"tokens": str(purged.tokens), "changes": str(purged.changes)}
            return purged

    def _delete_older(self, connection: Connection, column: Column[int], seconds: int | None) -> int:
        if seconds is None:
            return 0
        if not 0 <= seconds <= MAX_LIFE_SECONDS:
            raise RecipientError(f"an age: expected 0 to {MAX_LIFE_SECONDS} seconds")
        before_ms = self._earliest_ms() - seconds * 1000
        return connection.execute(delete(column.table).where(column <= before_ms)).rowcount

    def allow(self, name: str, networks: Sequence[str]) -> RecipientRecord:
        """Replace the networks that a recipient may connect from; without networks any address is allowed."""
        with self.changing("updateRecipient", name) as (connection, detail, record):
            _replace_networks(connection, record.name, networks, detail)
            return rows.read_one(connection, name)


def _replace_networks(
    connection: Connection, name: str, networks: Sequence[str], detail: dict[str, str]
) -> None:
    rows.delete(connection, NETWORKS, name)
    rows.insert(connection, {NETWORKS: rows.network_rows(name, networks)})
    detail["networks"] = " ".join(networks)


def _described(record: RecipientRecord) -> RecipientRecord:
    """Return a record without its credentials and its texts."""
    hidden: dict[str, Any] = {"tokens": (), "clients": (), **dict.fromkeys(TEXTS, "")}
    return replace(record, **hidden)
