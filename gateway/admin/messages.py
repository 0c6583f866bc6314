"""Requests and answers of the admin API.

Requests are validated by these types, and the OpenAPI document is generated from them: their docstrings and
limits are part of it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway.catalog.grants import MAX_CONDITION_BYTES
from gateway.config.checks import MAX_NAME_LENGTH, MAX_PROPERTY_LENGTH
from gateway.governance.recipient_names import MAX_POLICY_TEXT_LENGTH
from gateway.governance.recipient_records import (
    DEFAULT_LIFE_SECONDS,
    DEFAULT_LINK_SECONDS,
    MAX_LIFE_SECONDS,
    MAX_LINK_SECONDS,
)
from gateway.protocol.profile import Profile
from gateway.web.error_response import ErrorCode

MAX_LIST_LENGTH = 1000

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
Names = Annotated[tuple[Name, ...], Meta(max_length=MAX_LIST_LENGTH)]
Network = Annotated[str, Meta(description="an address or a network, IPv4 or IPv6")]
Networks = Annotated[tuple[Network, ...], Meta(max_length=MAX_LIST_LENGTH)]
TimeSeconds = Annotated[int, Meta(ge=0, description="seconds since the epoch; 0: never")]
Life = Annotated[int, Meta(ge=1, le=MAX_LIFE_SECONDS)]
Age = Annotated[int, Meta(ge=0, le=MAX_LIFE_SECONDS)]
PolicyText = Annotated[str, Meta(min_length=1, max_length=MAX_POLICY_TEXT_LENGTH)]
PolicyName = Annotated[str, Meta(pattern="^[a-z0-9-]{1,255}$")]
TimeMs = Annotated[int, Meta(description="milliseconds since the epoch")]
Condition = Annotated[str, Meta(min_length=1, max_length=MAX_CONDITION_BYTES)]
PropertyText = Annotated[str, Meta(min_length=1, max_length=MAX_PROPERTY_LENGTH)]
Refusal = Annotated[str | None, Meta(description="reason why the configuration was refused")]
AllowAbsent = Annotated[bool, Meta(description="accept shares that are not in the configuration yet")]
LinkLife = Annotated[int, Meta(ge=1, le=MAX_LINK_SECONDS, description="life of the activation link")]


class Request(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of request bodies."""


class Answer(Struct, frozen=True, rename="camel"):
    """Base of answers."""


class Addition(Request, frozen=True):
    """A new recipient, whose token ends after 90 days; `null`: no end. No networks allow any."""

    name: Name
    comment: str = ""
    shares: Names = ()
    networks: Networks = ()
    expires_in_seconds: Life | None = DEFAULT_LIFE_SECONDS
    allow_absent: AllowAbsent = False
    activation: Annotated[
        bool,
        Meta(description="with an activation link, which gives the profile once, instead of the profile"),
    ] = False
    link_expires_in_seconds: LinkLife = DEFAULT_LINK_SECONDS
    oauth_client: Annotated[
        bool,
        Meta(description="with a client instead of a bearer token, which is then forbidden to the recipient"),
    ] = False
    federation_policies: Annotated[
        tuple[FederationPolicy, ...],
        Meta(
            max_length=MAX_LIST_LENGTH,
            description="with policies the recipient uses tokens of an identity provider, and gets none here",
        ),
    ] = ()


class OidcPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """Which tokens of an identity provider are the recipient's. The fields have the names of Databricks."""

    issuer: PolicyText
    subject: PolicyText
    audiences: Annotated[tuple[PolicyText, ...], Meta(min_length=1, max_length=MAX_LIST_LENGTH)]
    subject_claim: PolicyText = "sub"
    claims: dict[PolicyText, PolicyText] = {}


class FederationPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """A federation policy of a recipient."""

    name: PolicyName
    oidc_policy: OidcPolicy


class StoredFederationPolicy(FederationPolicy, frozen=True):
    """A federation policy with the time at which it was added."""

    create_time: TimeMs


class FederationPolicies(Answer, frozen=True):
    """The federation policies of a recipient."""

    policies: tuple[StoredFederationPolicy, ...]


class Rotation(Request, frozen=True):
    """The lives of the youngest old token and of the new one: 0 and 90 days; `null`: no end."""

    old_expires_in_seconds: Age | None = None
    expires_in_seconds: Life | None = DEFAULT_LIFE_SECONDS


class ClientSecretLife(Request, frozen=True):
    """The lifetime of the first secret of a client: 90 days; `null`: no end."""

    expires_in_seconds: Life | None = DEFAULT_LIFE_SECONDS


class BearerTokens(Request, frozen=True):
    """Whether the bearer tokens of a recipient are refused."""

    forbidden: bool


class NetworkList(Request, frozen=True):
    """The networks that replace those of a recipient."""

    networks: Networks


class Purge(Request, frozen=True):
    """The least ages of deleted rows. At least one is required."""

    tokens_expired_for_seconds: Age | None = None
    history_older_than_seconds: Age | None = None


class GrantOptions(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The query parameters of a grant."""

    allow_absent: AllowAbsent = False


class RevocationOptions(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The query parameters of a revocation."""

    all_parts: Annotated[
        bool, Meta(description="also end grants for parts of the share, or with a condition")
    ] = False


class GrantPlace(Struct, frozen=True, forbid_unknown_fields=True):
    """A share, a schema of it, or a table of that. `*` is every share."""

    share: Name
    schema: Name | None = None
    table: Name | None = None


class GrantedPart(GrantPlace, frozen=True):
    """A grant for a place; with a condition, SQL over partition columns, for the files where it is true."""

    condition: Condition | None = None


class PropertyChanges(Request, frozen=True):
    """Texts by name that are set; null removes a property. The others stay."""

    properties: dict[Name, PropertyText | None]


class Token(Answer, frozen=True):
    """A token of a recipient. Its plain text is not stored."""

    created_ms: TimeMs
    expires_ms: TimeMs | None


class ClientSecret(Struct, frozen=True):
    """A secret of an OAuth client. Its plain text is not stored; the id is the beginning of its SHA-256."""

    id: str
    created_at: TimeSeconds
    client_secret_expires_at: TimeSeconds


class OAuthClient(Struct, frozen=True):
    """An OAuth client of a recipient. The fields have the names of RFC 7591."""

    client_id: str
    client_id_issued_at: TimeSeconds
    client_secrets: tuple[ClientSecret, ...]


class OAuthClients(Answer, frozen=True):
    """The OAuth clients of a recipient."""

    clients: tuple[OAuthClient, ...]


class IssuedSecret(Struct, frozen=True):
    """A new secret of an OAuth client, as a profile that is shown once, and by the names of RFC 7591."""

    recipient: str
    client_id: str
    client_secret: str
    client_secret_expires_at: TimeSeconds
    token_endpoint: str
    profile: Profile


class Recipient(Answer, frozen=True):
    """A recipient of the database."""

    name: str
    comment: str
    created_ms: TimeMs
    tokens: tuple[Token, ...]
    shares: tuple[str, ...]
    networks: tuple[str, ...]
    federation_policies: tuple[StoredFederationPolicy, ...]
    clients: tuple[OAuthClient, ...]
    bearer_tokens_forbidden: bool
    grants: tuple[GrantedPart, ...]
    properties: dict[str, str]


class NarrowedRecipient(Recipient, frozen=True):
    """A recipient of the database, and the grants by which what was taken back may still be read."""

    still_readable_by: tuple[str, ...]


class GrantedRecipient(Recipient, frozen=True):
    """A recipient of the database, and what is wrong with a grant that was given."""

    warnings: tuple[str, ...]


class Change(Answer, frozen=True):
    """An entry of a recipient's history."""

    at_ms: TimeMs
    actor: str
    action: str
    detail: dict[str, str]


class RecipientHistory(Recipient, frozen=True):
    """A recipient of the database with the history of its changes."""

    history: tuple[Change, ...]


class UnreadableRecipient(Answer, frozen=True):
    """A recipient that is refused, because another program has written invalid rows, and what is invalid."""

    name: str
    reason: str


class Recipients(Answer, frozen=True, omit_defaults=True):
    """All recipients of the database. Those that cannot be read are named, if there are any."""

    recipients: tuple[Recipient, ...]
    unreadable: tuple[UnreadableRecipient, ...] = ()


class Issued(Answer, frozen=True, omit_defaults=True):
    """A new token, as a profile that is shown once.

    The profile of a recipient with federation policies is one to complete. With an activation link there is
    no profile, which the link gives.
    """

    recipient: str
    profile: Profile | None = None
    activation_url: str | None = None


class ActivationLinkLife(Request, frozen=True):
    """The lives of an activation link, and of its token or secret: 90 days; `null`: no end."""

    link_expires_in_seconds: LinkLife = DEFAULT_LINK_SECONDS
    expires_in_seconds: Life | None = DEFAULT_LIFE_SECONDS


class ActivationLink(Answer, frozen=True):
    """A link that gives a profile once. Its part behind `#` is a secret."""

    recipient: str
    activation_url: str
    expires_ms: TimeMs


class Purged(Answer, frozen=True):
    """The counts of deleted tokens and changes."""

    tokens: int
    changes: int


class ReloadedWorker(Answer, frozen=True):
    """The result of a reload in one worker."""

    worker: int
    process_id: int | None
    reloaded: bool
    refused: Refusal


class Reloaded(Answer, frozen=True):
    """Whether every process applied the configuration, and the result of each worker."""

    reloaded: bool
    refused: Refusal
    workers: tuple[ReloadedWorker, ...]


class Error(Answer, frozen=True):
    """The answer to a request that failed."""

    error_code: ErrorCode
    message: str
