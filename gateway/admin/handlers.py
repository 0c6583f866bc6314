"""The operations of the admin API, one function each.

The type of a parameter `body` or `query` is what the request must hold, and the type of the result is the
answer: `operation` reads these types. The first line of a docstring is the summary in the OpenAPI document.
Blocking calls (the database, the workers' metrics) run in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiohttp import web
from msgspec import Struct
from msgspec.structs import asdict

from gateway.admin import messages
from gateway.admin.call import Call
from gateway.admin.openapi import DOCUMENT
from gateway.authentication.oauth_clients import secret_id
from gateway.authentication.policies import TokenPolicy
from gateway.catalog.grants import Grant
from gateway.database.errors import DatabaseMissing
from gateway.errors import InvalidParameter
from gateway.governance import grant_operations, recipient_records
from gateway.governance.credentials import (
    FirstCredential,
    NewClient,
    NewLink,
    NewSecret,
    NewToken,
    Policies,
    find_client,
)
from gateway.governance.recipient_records import (
    DEFAULT_LIFE_SECONDS,
    ClientRecord,
    IssuedLink,
    IssuedToken,
    PolicyRecord,
    RecipientNotFound,
    RecipientRecord,
    described_by,
    profile_of,
)
from gateway.governance.recipient_store import RecipientDatabase
from gateway.protocol.headers import JSON_CONTENT_TYPE
from gateway.protocol.profile import TOKEN_ENDPOINT, activation_url, oauth_profile
from gateway.report.text import escaped
from gateway.tables.rules import native_rule
from gateway.telemetry.audit_record import RELOAD
from gateway.telemetry.metrics import CONTENT_TYPE


async def alive(_call: Call) -> web.Response:
    """Answer that the listener is alive."""
    return web.Response(text="ok\n")


async def openapi(call: Call) -> web.Response:
    """Return this document."""
    headers = {"Content-Type": JSON_CONTENT_TYPE, "Cache-Control": "no-store"}
    return web.Response(body=call.request.app[DOCUMENT], headers=headers)


async def metrics(call: Call) -> web.Response:
    """Return the metrics of all workers, for Prometheus."""
    page = await asyncio.to_thread(call.administration.metrics_page)
    return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE})


async def reload(call: Call) -> messages.Reloaded:
    """Read the configuration again, in every process that serves."""
    administration = call.administration
    result = await administration.reload()
    address = administration.client_address(call.request)
    administration.audited(RELOAD, call.acting, address, 200 if result.is_whole else 400)
    workers = tuple(
        messages.ReloadedWorker(worker.index, worker.process_id, worker.refused is None, worker.refused)
        for worker in result.workers
    )
    return messages.Reloaded(result.is_whole, result.refused, workers)


async def list_recipients(call: Call) -> messages.Recipients:
    """List the recipients."""

    def read(database: RecipientDatabase) -> messages.Recipients:
        reading = database.read_all()
        unreadable = reading.unreadable.items()
        return messages.Recipients(
            tuple(map(_recipient, reading.records)),
            tuple(messages.UnreadableRecipient(escaped(str(key)), reason) for key, reason in unreadable),
        )

    try:
        return await call.with_database(read, read_only=True)
    except DatabaseMissing:
        return messages.Recipients(())


async def show_recipient(call: Call) -> messages.RecipientHistory:
    """Return a recipient with its history."""

    def read(database: RecipientDatabase) -> tuple[RecipientRecord, Sequence[recipient_records.ChangeRecord]]:
        call.tag(database)
        return database.show(call.name), database.history(call.name)

    record, changes = await call.with_database(read, read_only=True)
    history = tuple(
        messages.Change(change.at_ms, change.actor, change.action, {**change.detail}) for change in changes
    )
    return messages.RecipientHistory(**asdict(_recipient(record)), history=history)


async def add_recipient(call: Call, body: messages.Addition) -> messages.Issued:
    """Add a recipient, and return the profile of its first token, or a link that gives it."""
    credential, described = _first_credential(body), described_by(body)
    given = await call.with_database(
        lambda database: database.add(body.name, credential, **described), create=True
    )
    endpoint = call.administration.config().endpoint_url
    if isinstance(given, IssuedLink):
        return messages.Issued(given.recipient, activation_url=activation_url(endpoint, given.code))
    if isinstance(given, str):
        return messages.Issued(
            given, oauth_profile(endpoint, token_endpoint=None, client_id=None, scope=None)
        )
    return _issued(call, given)


def _first_credential(
    body: messages.Addition,
) -> FirstCredential[IssuedToken | recipient_records.IssuedSecret | IssuedLink | str]:
    life = body.expires_in_seconds
    if body.federation_policies:
        for is_asked, option in ((body.activation, "activation"), (body.oauth_client, "oauthClient")):
            if is_asked:
                raise InvalidParameter(f"{option} and federationPolicies exclude each other")
        if life not in (None, DEFAULT_LIFE_SECONDS):
            raise InvalidParameter(
                "expiresInSeconds is for tokens of this server, not for federationPolicies"
            )
        policies = {policy.name: TokenPolicy.of(policy.oidc_policy) for policy in body.federation_policies}
        if len(policies) < len(body.federation_policies):
            raise InvalidParameter("federationPolicies have the same name")
        return Policies(policies)
    if body.activation:
        return NewLink(body.link_expires_in_seconds, life, "client" if body.oauth_client else "token")
    return NewClient(life) if body.oauth_client else NewToken(life)


async def add_activation_link(call: Call, body: messages.ActivationLinkLife) -> messages.ActivationLink:
    """Return a link that gives another profile once; unused links of the recipient end."""
    credential = NewLink(**asdict(body))
    link = await call.with_database(lambda database: database.issue(call.name, credential))
    url = activation_url(call.administration.config().endpoint_url, link.code)
    return messages.ActivationLink(link.recipient, url, link.expires_ms)


async def list_policies(call: Call) -> messages.FederationPolicies:
    """List the federation policies of a recipient."""
    record = await call.with_database(lambda database: database.show(call.name), read_only=True)
    return messages.FederationPolicies(tuple(map(_stored_policy, record.policies)))


async def add_policy(
    call: Call, body: messages.FederationPolicy, query: messages.GrantOptions
) -> messages.StoredFederationPolicy:
    """Add a federation policy to a recipient."""
    record = await call.with_database(
        lambda database: database.add_policy(
            call.name, body.name, TokenPolicy.of(body.oidc_policy), allow_absent=query.allow_absent
        )
    )
    return _policy_named(record, body.name)


async def show_policy(call: Call) -> messages.StoredFederationPolicy:
    """Return a federation policy."""
    record = await call.with_database(lambda database: database.show(call.name), read_only=True)
    return _policy_named(record, call.policy)


async def remove_policy(call: Call) -> messages.FederationPolicies:
    """Remove a federation policy, and return the others."""
    record = await call.with_database(lambda database: database.remove_policy(call.name, call.policy))
    return messages.FederationPolicies(tuple(map(_stored_policy, record.policies)))


async def list_clients(call: Call) -> messages.OAuthClients:
    """List the OAuth clients of a recipient."""
    record = await call.with_database(lambda database: database.show(call.name), read_only=True)
    return messages.OAuthClients(tuple(map(_client, record.clients)))


async def add_client(call: Call, body: messages.ClientSecretLife) -> messages.IssuedSecret:
    """Add an OAuth client to a recipient, and return the profile of its first secret."""
    credential = NewClient(**_options(body))
    issued = await call.with_database(lambda database: database.issue(call.name, credential))
    return _issued_secret(call, issued)


async def show_client(call: Call) -> messages.OAuthClient:
    """Return an OAuth client."""
    record = await call.with_database(lambda database: database.show(call.name), read_only=True)
    return _client(find_client(record, call.client))


async def rotate_client(call: Call, body: messages.Rotation) -> messages.IssuedSecret:
    """Issue a new secret; the youngest old one may stay valid for a while."""
    credential = NewSecret(call.client, **_options(body))
    issued = await call.with_database(lambda database: database.issue(call.name, credential))
    return _issued_secret(call, issued)


async def remove_client(call: Call) -> messages.OAuthClients:
    """Remove an OAuth client with its access tokens, and return the others."""
    record = await call.with_database(lambda database: database.remove_client(call.name, call.client))
    return messages.OAuthClients(tuple(map(_client, record.clients)))


async def set_bearer_tokens(call: Call, body: messages.BearerTokens) -> messages.Recipient:
    """Forbid or allow the bearer tokens of a recipient."""
    record = await call.with_database(
        lambda database: database.forbid_bearer_tokens(call.name, forbidden=body.forbidden)
    )
    return _recipient(record)


async def rotate_token(call: Call, body: messages.Rotation) -> messages.Issued:
    """Issue a new token; the youngest old one may stay valid for a while."""
    credential = NewToken(**_options(body))
    issued = await call.with_database(lambda database: database.issue(call.name, credential))
    return _issued(call, issued)


async def revoke_tokens(call: Call) -> messages.Recipient:
    """End all tokens and client secrets of a recipient."""
    return _recipient(await call.with_database(lambda database: database.revoke(call.name)))


async def allow_networks(call: Call, body: messages.NetworkList) -> messages.Recipient:
    """Replace a recipient's networks."""
    networks = body.networks
    return _recipient(await call.with_database(lambda database: database.allow(call.name, networks)))


async def grant_share(call: Call, query: messages.GrantOptions) -> messages.Recipient:
    """Grant a share."""
    record = await call.with_database(
        lambda database: database.grant(call.name, [call.share], **asdict(query))
    )
    return _recipient(record)


async def revoke_share(call: Call, query: messages.RevocationOptions) -> messages.NarrowedRecipient:
    """Revoke the grant of a share, or all grants for it and its parts."""
    record = await call.with_database(
        lambda database: database.revoke(call.name, shares=[call.share], **asdict(query))
    )
    return _narrowed(record, Grant.of(call.share, None, None, None))


async def grant_part(
    call: Call, body: messages.GrantedPart, query: messages.GrantOptions
) -> messages.GrantedRecipient:
    """Grant a part of a share, with or without a condition. It replaces the grant for the same place."""
    grant = Grant.of(body.share, body.schema, body.table, body.condition)
    before, stored = await call.with_database(
        lambda database: (database.show(call.name), database.stored_shares()), read_only=True
    )
    # Tables are read before the transaction, which others wait for.
    check = call.administration.grant_warnings
    warnings = await asyncio.to_thread(check, stored, [grant], before.properties)
    record = await call.with_database(
        lambda database: grant_operations.grant_parts(
            database, call.name, [grant], native_rule, **asdict(query)
        )
    )
    return messages.GrantedRecipient(**asdict(_recipient(record)), warnings=tuple(warnings))


async def revoke_part(call: Call, body: messages.GrantPlace) -> messages.NarrowedRecipient:
    """Revoke the grant for a part of a share, with any condition."""
    place = Grant.of(body.share, body.schema, body.table, None)
    record = await call.with_database(
        lambda database: grant_operations.revoke_parts(database, call.name, [place])
    )
    return _narrowed(record, place)


async def set_properties(call: Call, body: messages.PropertyChanges) -> messages.Recipient:
    """Set or remove properties of a recipient, which conditions of grants use."""
    record = await call.with_database(
        lambda database: grant_operations.set_properties(database, call.name, body.properties, native_rule)
    )
    return _recipient(record)


async def delete_recipient(call: Call) -> messages.Recipient:
    """Delete a recipient with its tokens, clients and grants, and return its last state."""
    return _recipient(await call.with_database(lambda database: database.delete(call.name)))


async def purge(call: Call, body: messages.Purge) -> messages.Purged:
    """Delete expired tokens, expired client secrets and old history."""
    if body == messages.Purge():
        raise InvalidParameter("give tokensExpiredForSeconds, historyOlderThanSeconds or both")
    purged = await call.with_database(lambda database: database.purge(**asdict(body)))
    return messages.Purged(purged.tokens, purged.changes)


def _options(body: Struct) -> dict[str, Any]:
    """Return what a request gives: the options of a credential have the same names."""
    return {name: value for name, value in asdict(body).items() if value is not None}


def _issued(call: Call, issued: IssuedToken | recipient_records.IssuedSecret) -> messages.Issued:
    return messages.Issued(issued.recipient, profile_of(call.administration.config().endpoint_url, issued))


def _recipient(record: recipient_records.RecipientRecord) -> messages.Recipient:
    """Return a record as a message: fields of the same name, and converted fields."""
    same = {
        name: getattr(record, name) for name in messages.Recipient.__struct_fields__ if hasattr(record, name)
    }
    other = {
        "tokens": tuple(messages.Token(token.created_ms, token.expires_ms) for token in record.tokens),
        "federation_policies": tuple(map(_stored_policy, record.policies)),
        "clients": tuple(map(_client, record.clients)),
        "bearer_tokens_forbidden": record.forbids_bearer_tokens,
        "grants": tuple(
            messages.GrantedPart(grant.share, grant.schema, grant.table, grant.condition)
            for grant in record.grants
        ),
        "properties": dict(record.properties),
    }
    return messages.Recipient(**{**same, **other})


def _narrowed(record: recipient_records.RecipientRecord, taken: Grant) -> messages.NarrowedRecipient:
    return messages.NarrowedRecipient(
        **asdict(_recipient(record)), still_readable_by=record.still_readable([taken])
    )


def _client(record: ClientRecord) -> messages.OAuthClient:
    secrets = tuple(
        messages.ClientSecret(
            secret_id(bytes.fromhex(secret.sha256)), _seconds(secret.created_ms), _seconds(secret.expires_ms)
        )
        for secret in record.secrets
    )
    return messages.OAuthClient(record.id, _seconds(record.created_ms), secrets)


def _issued_secret(call: Call, issued: recipient_records.IssuedSecret) -> messages.IssuedSecret:
    endpoint = call.administration.config().endpoint_url
    return messages.IssuedSecret(
        issued.recipient,
        issued.client_id,
        issued.secret,
        _seconds(issued.expires_ms),
        endpoint + TOKEN_ENDPOINT,
        profile_of(endpoint, issued),
    )


def _seconds(time_ms: int | None) -> int:
    return 0 if time_ms is None else time_ms // 1000


def _stored_policy(record: PolicyRecord) -> messages.StoredFederationPolicy:
    policy = record.policy
    audiences = tuple(sorted(policy.audiences))
    described = messages.OidcPolicy(
        policy.issuer, policy.subject, audiences, policy.subject_claim, dict(policy.claims)
    )
    return messages.StoredFederationPolicy(record.name, described, record.created_ms)


def _policy_named(record: recipient_records.RecipientRecord, name: str) -> messages.StoredFederationPolicy:
    for stored in record.policies:
        if stored.name == name:
            return _stored_policy(stored)
    raise RecipientNotFound(f"recipient {record.name!r} has no policy {name!r}")
