"""The messages of the protocol as types: answers of listings, and all that the OpenAPI document describes.

Listings are encoded from these types. Lines of streamed answers are written by the native module, and bodies
and parameters of queries are parsed by `queries`; their types here are descriptions, which tests compare with
real requests and answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, json, structs

from gateway.config.checks import MAX_COMMENT_LENGTH, MAX_NAME_LENGTH
from gateway.encoding import one_line
from gateway.protocol.parsing import MAX_INT32, MAX_INT64

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
Version = Annotated[int, Meta(ge=0, le=MAX_INT64, description="version of a table")]
Time = Annotated[
    str,
    Meta(
        description="time in ISO 8601, such as 2026-01-02T03:04:05Z; without an offset, UTC. Seconds may be "
        "absent, and the basic form 20260102T030405Z is accepted",
        extra_json_schema={"anyOf": [{"format": "date-time"}, {"format": "date"}]},
    ),
]
TimeMs = Annotated[int, Meta(description="milliseconds since the epoch")]
PageToken = Annotated[str, Meta(description="token of an earlier answer, with the same request")]
MaxFiles = Annotated[int, Meta(ge=1, le=MAX_INT64, description="maximum number of files of a page")]
AS_TEXT = "the number as text, as in the JSON of protobuf; an exponent is accepted, too"
WholeNumber = Annotated[str, Meta(pattern=r"^[0-9]{1,18}(\.0{1,18})?$", description=AS_TEXT)]
PositiveNumber = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,17}(\.0{1,18})?$", description=AS_TEXT)]


Directory = Annotated[str, Meta(description="root of the table, for directory access")]
AuxiliaryDirectories = Annotated[
    tuple[str, ...], Meta(description="further directories with files of the table")
]
AccessModes = Annotated[
    tuple[Literal["url", "dir"], ...], Meta(description="how the table is read; without it, url")
]


class Message(Struct, frozen=True, rename="camel"):
    """Base of messages; a field that is unset is left out."""


def encoded(message: Struct) -> bytes:
    """Return a message as JSON on one line."""
    return one_line(json.encode(message))


class Share(Message, frozen=True):
    """A share."""

    name: Name
    id: str
    display_name: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)] | UnsetType = UNSET
    comment: Annotated[str, Meta(max_length=MAX_COMMENT_LENGTH)] | UnsetType = UNSET
    properties: Mapping[str, str] | UnsetType = UNSET


class Schema(Message, frozen=True):
    """A schema of a share."""

    name: Name
    share: Name


class Table(Message, frozen=True):
    """A table of a schema."""

    name: Name
    schema: Name
    share: Name
    share_id: str
    id: str
    format: Annotated[str, Meta(description="formats of the table: delta")] | UnsetType = UNSET
    location: Directory | UnsetType = UNSET
    auxiliary_locations: AuxiliaryDirectories | UnsetType = UNSET
    access_modes: AccessModes | UnsetType = UNSET


class Volume(Message, frozen=True):
    """A volume of a schema, as in OpenSharing: a directory of files that are not tables."""

    name: Name
    schema: Name
    share: Name
    share_id: str
    id: str
    storage_location: Annotated[str, Meta(description="the directory, in its object store")]
    comment: Annotated[str, Meta(max_length=MAX_COMMENT_LENGTH)] | UnsetType = UNSET


class ShareAnswer(Message, frozen=True):
    """One share."""

    share: Share


class Shares(Message, frozen=True):
    """A page of shares."""

    items: tuple[Share, ...] | UnsetType = UNSET
    next_page_token: PageToken | UnsetType = UNSET


class Schemas(Message, frozen=True):
    """A page of schemas."""

    items: tuple[Schema, ...] | UnsetType = UNSET
    next_page_token: PageToken | UnsetType = UNSET


class Tables(Message, frozen=True):
    """A page of tables."""

    items: tuple[Table, ...] | UnsetType = UNSET
    next_page_token: PageToken | UnsetType = UNSET


class Volumes(Message, frozen=True):
    """A page of volumes."""

    items: tuple[Volume, ...] | UnsetType = UNSET
    next_page_token: PageToken | UnsetType = UNSET


POWER_QUERY = ("Microsoft.Data.Mashup", "Delta-Sharing-PowerBI/")
"""How the `User-Agent` of Power BI begins: of listings, and of requests in the connector's own name."""


def for_power_query(items: Sequence[Message]) -> tuple[Message, ...] | UnsetType:
    """Return listed items without their optional fields; UNSET if there are none.

    Power BI's connector reads an empty list as a table without the column `name` and fails, and it fails at
    an item that lacks a field of the first one. Other clients need the empty list.
    """
    return tuple(_required(item) for item in items) or UNSET


def _required(message: Message) -> Message:
    kind = type(message)
    required = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
    return kind(*structs.astuple(message)[:required])


class ListParameters(Message, frozen=True):
    """The parameters of a listing."""

    max_results: Annotated[int, Meta(ge=0, le=MAX_INT32)] | UnsetType = UNSET
    page_token: PageToken | UnsetType = UNSET


class VersionParameters(Message, frozen=True):
    """The parameter of a table's version."""

    starting_timestamp: Time | UnsetType = UNSET


class MetadataParameters(Message, frozen=True):
    """The parameters of a table's metadata; at most one of them."""

    version: Version | UnsetType = UNSET
    timestamp: Time | UnsetType = UNSET


class ChangesParameters(Message, frozen=True):
    """The parameters of the change data feed; exactly one start, at most one end."""

    starting_version: Version | UnsetType = UNSET
    starting_timestamp: Time | UnsetType = UNSET
    ending_version: Version | UnsetType = UNSET
    ending_timestamp: Time | UnsetType = UNSET
    include_historical_metadata: bool | UnsetType = UNSET
    include_historical_protocol: bool | UnsetType = UNSET
    max_files: MaxFiles | UnsetType = UNSET
    page_token: PageToken | UnsetType = UNSET


class QueryBody(Message, frozen=True):
    """The body of a query; every field is optional, and null counts as absent."""

    version: Version | WholeNumber | UnsetType | None = UNSET
    timestamp: Time | UnsetType | None = UNSET
    starting_version: Version | WholeNumber | UnsetType | None = UNSET
    ending_version: Version | WholeNumber | UnsetType | None = UNSET
    predicate_hints: Annotated[tuple[str, ...], Meta(description="conditions in SQL")] | UnsetType | None = (
        UNSET
    )
    json_predicate_hints: (
        Annotated[str, Meta(description="a condition as a tree, in JSON")]
        | Annotated[Mapping[str, Any], Meta(description="the tree itself")]
        | UnsetType
        | None
    ) = UNSET
    limit_hint: (
        Annotated[int, Meta(ge=0, le=MAX_INT64, description="rows that are needed; 0 is no limit")]
        | WholeNumber
        | UnsetType
        | None
    ) = UNSET
    max_files: MaxFiles | PositiveNumber | UnsetType | None = UNSET
    page_token: PageToken | UnsetType | None = UNSET
    include_refresh_token: bool | UnsetType | None = UNSET
    refresh_token: str | UnsetType | None = UNSET
    include_historical_protocol: bool | UnsetType | None = UNSET


class EndStreamAction(Message, frozen=True):
    """The last line of an answer, where the request makes the server send it."""

    refresh_token: str | UnsetType = UNSET
    next_page_token: PageToken | UnsetType = UNSET
    min_url_expiration_timestamp: TimeMs | UnsetType = UNSET
    error_message: (
        Annotated[str, Meta(description="the answer has failed and is not complete")] | UnsetType
    ) = UNSET
    http_status_error_code: int | UnsetType = UNSET


class File(Message, frozen=True):
    """A data file. The parquet format has its fields; the delta format an action of the log."""

    id: str
    expiration_timestamp: TimeMs | UnsetType = UNSET
    url: str | UnsetType = UNSET
    size: Annotated[int, Meta(ge=0, description="bytes")] | UnsetType = UNSET
    partition_values: Mapping[str, str | None] | UnsetType = UNSET
    stats: Annotated[str, Meta(description="statistics of the columns, in JSON")] | UnsetType = UNSET
    version: Version | UnsetType = UNSET
    timestamp: TimeMs | UnsetType = UNSET
    deletion_vector_file_id: str | UnsetType = UNSET
    delta_single_action: Mapping[str, Any] | UnsetType = UNSET


class Protocol(Message, frozen=True):
    """What a reader needs. The delta format has the log's action."""

    min_reader_version: int | UnsetType = UNSET
    delta_protocol: Mapping[str, Any] | UnsetType = UNSET
    version: Version | UnsetType = UNSET


class MetaData(Message, frozen=True):
    """The metadata of a table. The delta format has the log's action."""

    size: Annotated[int, Meta(ge=0, description="bytes of all files")] | UnsetType = UNSET
    num_files: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    version: Version | UnsetType = UNSET
    id: str | UnsetType = UNSET
    name: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    format: Mapping[str, Any] | UnsetType = UNSET
    schema_string: str | UnsetType = UNSET
    partition_columns: tuple[str, ...] | UnsetType = UNSET
    configuration: Mapping[str, str] | UnsetType = UNSET
    delta_metadata: Mapping[str, Any] | UnsetType = UNSET
    location: Directory | UnsetType = UNSET
    auxiliary_locations: AuxiliaryDirectories | UnsetType = UNSET
    access_modes: AccessModes | UnsetType = UNSET


class Line(Message, frozen=True):
    """A line of an answer, an object with one field."""

    protocol: Protocol | UnsetType = UNSET
    meta_data: MetaData | UnsetType = UNSET
    file: File | UnsetType = UNSET
    add: File | UnsetType = UNSET
    cdf: File | UnsetType = UNSET
    remove: File | UnsetType = UNSET
    end_stream_action: EndStreamAction | UnsetType = UNSET


class CredentialsBody(Message, frozen=True):
    """The body of a request for temporary credentials."""

    location: (
        Annotated[str, Meta(description="root of the table, or one of auxiliaryLocations")] | UnsetType
    ) = UNSET


class SessionKeys(Message, frozen=True):
    """Temporary keys of S3."""

    access_key_id: str
    secret_access_key: str
    session_token: str


class SharedAccessSignature(Message, frozen=True):
    """A shared access signature of Azure."""

    sas_token: str


class OauthToken(Message, frozen=True):
    """An access token of Google."""

    oauth_token: str


class VolumeCredentials(Message, frozen=True, kw_only=True):
    """Temporary credentials for a volume, in one of four forms. OpenSharing has no wrapper for these."""

    aws_temp_credentials: SessionKeys | UnsetType = UNSET
    azure_user_delegation_sas: SharedAccessSignature | UnsetType = UNSET
    gcp_oauth_token: OauthToken | UnsetType = UNSET
    r2_credentials: SessionKeys | UnsetType = UNSET
    expiration_time: TimeMs


class TemporaryCredentials(VolumeCredentials, frozen=True, kw_only=True):
    """A credential that reads a directory, in one of four forms."""

    location: str


class CredentialsAnswer(Message, frozen=True):
    """Temporary credentials for a table."""

    credentials: TemporaryCredentials


class TokenForm(Struct, frozen=True):
    """The form of a token request. With HTTP Basic it has neither `client_id` nor `client_secret`."""

    grant_type: Literal["client_credentials"]
    client_id: str | UnsetType = UNSET
    client_secret: str | UnsetType = UNSET
    scope: Annotated[str, Meta(description="ignored")] | UnsetType = UNSET


class IssuedToken(Struct, frozen=True):
    """An access token."""

    access_token: str
    token_type: Literal["Bearer"]
    expires_in: Annotated[int, Meta(ge=0, description="seconds")]


class Error(Message, frozen=True):
    """The body of an error."""

    error_code: Annotated[str, Meta(description="one of the protocol page's list")]
    message: str


class TokenError(Struct, frozen=True, rename={"error_code": "errorCode"}):
    """The body of an error of a token request, as OAuth 2.0 and with the fields of other errors."""

    error: Annotated[str, Meta(description="error code of RFC 6749, section 5.2")]
    error_description: str
    error_code: str
    message: str
