"""Temporary credentials for the directory of a table or a volume.

In: a table that offers directory access and one of its roots, or a volume. Out: one JSON object. The
credential is never in a log, a metric or the audit log, which has its id and its end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import msgspec

from gateway.catalog.catalog import Recipient, SharedTable
from gateway.config import Location
from gateway.errors import (
    AccessRevoked,
    GatewayError,
    InvalidParameter,
    PermissionDenied,
    Unavailable,
    UnsupportedOperation,
)
from gateway.protocol import messages
from gateway.protocol.headers import JSON_CONTENT_TYPE
from gateway.protocol.parsing import json_object, string_field
from gateway.routes.table_request import NO_ACCESS
from gateway.state import GatewayState
from gateway.storage.vending.credential import TemporaryCredential
from gateway.storage.vending.vendor import Issued
from gateway.telemetry.request_record import IssuedCredential
from gateway.web.context import RequestContext
from gateway.web.response import WholeResponse

Find = Callable[[GatewayState, Recipient], tuple[Location, str]]
"""Returns the directory and the id of a granted table or volume. Raises GatewayError."""

Message = TypeVar("Message", messages.TemporaryCredentials, messages.VolumeCredentials)

MAX_LOCATION_CHARACTERS = 4096
HEADERS = {"Content-Type": JSON_CONTENT_TYPE, "Cache-Control": "no-store"}


async def temporary_table_credentials(context: RequestContext) -> WholeResponse:
    """`POST .../temporary-table-credentials`: temporary credentials for the directory of a table."""
    names = context.names

    def find(state: GatewayState, recipient: Recipient) -> tuple[Location, str]:
        table = state.catalog.table(recipient, names["share"], names["schema"], names["table"])
        context.record.table = table.full_name
        context.storage = state.tables.storages.name(table.location)
        if not table.offers_directory and not table.offers_urls:
            raise PermissionDenied(NO_ACCESS)
        if not table.offers_directory:
            raise UnsupportedOperation("the table does not offer directory access; query it for URLs")
        return requested_root(table, string_field(json_object(context.body), "location")), table.id

    credential = await _issue(context, find)
    message = _message(messages.TemporaryCredentials, credential, location=credential.location.hadoop_url)
    return WholeResponse(messages.encoded(messages.CredentialsAnswer(message)), HEADERS)


async def temporary_volume_credentials(context: RequestContext) -> WholeResponse:
    """`POST .../temporary-volume-credentials`, of OpenSharing: temporary credentials for a volume."""
    names = context.names

    def find(state: GatewayState, recipient: Recipient) -> tuple[Location, str]:
        volume = state.catalog.volume(recipient, names["share"], names["schema"], names["volume"])
        context.record.volume = volume.full_name
        context.storage = state.tables.storages.name(volume.location)
        return volume.location, volume.id

    credential = await _issue(context, find)
    return WholeResponse(messages.encoded(_message(messages.VolumeCredentials, credential)), HEADERS)


async def _issue(context: RequestContext, find: Find) -> TemporaryCredential:
    """Return a credential of the recipient for what `find` returns, and record it.

    The token, the networks and the grant are checked again after the credential is issued: it outlives the
    request, whose body and provider may take long. Raises AccessRevoked and Unavailable where they differ.
    """
    # Of the present state, which may be newer than the state at the head of the request.
    state, recipient = access = context.current_access()
    location, purpose = find(state, recipient)
    context.record.credential = "failed"
    issued = await state.vendor.credential(location, recipient, purpose)
    try:
        _require_unchanged(context, access, find, issued)
    except GatewayError:
        state.vendor.discard(issued)
        raise
    credential = issued.credential
    context.record.credential = "cached" if issued.is_cached else "issued"
    context.issued = IssuedCredential(
        credential.location.hadoop_url, credential.expires_ms, credential.key_id
    )
    return credential


def _require_unchanged(
    context: RequestContext, access: tuple[GatewayState, Recipient], find: Find, issued: Issued
) -> None:
    """Raise AccessRevoked without access, and Unavailable if the credential would now differ."""
    state, recipient = context.current_access()
    if state is access[0] and recipient == access[1]:
        return
    try:
        location, purpose = find(state, recipient)
    except GatewayError:
        raise AccessRevoked from None
    if state.vendor.key(location, recipient, purpose) != issued.key:
        raise Unavailable("the configuration changed while the credential was issued; repeat the request")


def requested_root(table: SharedTable, text: str | None) -> Location:
    """Return the root that a request names, else the root of the table. Raises InvalidParameter."""
    if text is None:
        return table.location
    location = None
    # A longer text takes its time in the parser, and names no root.
    if len(text) <= MAX_LOCATION_CHARACTERS:
        with suppress(ValueError):
            location = Location.parse(text)
    for root in (table.location, *table.auxiliary_locations):
        if root == location:
            return root
    raise InvalidParameter("location must be the location of the table, or one of its auxiliaryLocations")


def _message(kind: type[Message], credential: TemporaryCredential, **extra_fields: str) -> Message:
    """Return a credential as a message, which has its secrets in the field of its form."""
    fields = {name: secret.reveal() for name, secret in credential.fields.items()}
    form = {credential.form: fields, "expirationTime": credential.expires_ms}
    return msgspec.convert(extra_fields | form, kind)
