"""Temporary credentials: for the directory of a table, and for that of a volume.

In: a table that offers directory access and one of its roots, or a volume. Out: one JSON object. The
credential is never in a log, a metric or the audit log, which has its id and its end.
"""

from __future__ import annotations

import msgspec

from gateway.access.catalog import SharedTable
from gateway.config import Location
from gateway.errors import InvalidParameter, UnsupportedOperation
from gateway.protocol import messages
from gateway.protocol.parsing import json_object, string_field
from gateway.storage.vending.credential import TemporaryCredential
from gateway.telemetry.request_record import IssuedCredential
from gateway.web.context import RequestContext
from gateway.web.error_response import JSON_CONTENT_TYPE
from gateway.web.response import WholeResponse

HEADERS = {"Content-Type": JSON_CONTENT_TYPE, "Cache-Control": "no-store"}


async def temporary_table_credentials(context: RequestContext) -> WholeResponse:
    """`POST .../temporary-table-credentials`: temporary credentials for the directory of a table."""
    recipient, names = context.required_recipient, context.names
    table = context.state.catalog.table(recipient, names["share"], names["schema"], names["table"])
    context.record.table = table.full_name
    if not table.offers_directory:
        raise UnsupportedOperation("the table does not offer directory access; query it for URLs")
    location = requested_root(table, string_field(json_object(context.body), "location"))
    credential = await _issue(context, location, table.id)
    return WholeResponse(msgspec.json.encode(messages.CredentialsAnswer(message_of(credential))), HEADERS)


async def temporary_volume_credentials(context: RequestContext) -> WholeResponse:
    """`POST .../temporary-volume-credentials`, of OpenSharing: temporary credentials for a volume."""
    recipient, names = context.required_recipient, context.names
    volume = context.state.catalog.volume(recipient, names["share"], names["schema"], names["volume"])
    context.record.volume = volume.full_name
    credential = await _issue(context, volume.location, volume.id)
    fields = {name: secret.reveal() for name, secret in credential.fields.items()}
    answer = messages.volume_credentials(credential.form, fields, credential.expires_ms)
    return WholeResponse(msgspec.json.encode(answer), HEADERS)


async def _issue(context: RequestContext, location: Location, purpose: str) -> TemporaryCredential:
    """Return a credential for a location, and record it."""
    context.record.credential = "failed"
    issued = await context.state.vendor.credential(location, context.required_recipient, purpose)
    credential = issued.credential
    context.record.credential = "cached" if issued.is_cached else "issued"
    context.record.issued = IssuedCredential(
        credential.location.hadoop_url, credential.expires_ms, credential.key_id
    )
    return credential


def requested_root(table: SharedTable, text: str | None) -> Location:
    """Return the root that a request names, else that of the table. Raises InvalidParameter."""
    if text is None:
        return table.location
    try:
        location = Location.parse(text)
    except ValueError:
        location = None
    for root in (table.location, *table.auxiliary_locations):
        if root == location:
            return root
    raise InvalidParameter("location is that of the table, or one of its auxiliaryLocations")


def message_of(credential: TemporaryCredential) -> messages.TemporaryCredentials:
    """Return a credential as a message. Its parts are secret."""
    fields = {name: secret.reveal() for name, secret in credential.fields.items()}
    return messages.temporary_credentials(
        credential.form, fields, credential.location.hadoop_url, credential.expires_ms
    )
