"""The users of an identity provider: who signs in, and in which role.

In: the verified claims of an ID token. Out: an `Identity`, or `SignInFailed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.authentication.policies import EMAIL, claim_values, is_verified_email
from gateway.config import ConsoleOidc
from gateway.console.sessions import Role
from gateway.oidc.sign_in_flow import SignInFailed

MAX_NAME_LENGTH = 255
NO_ROLE = (
    "The identity provider knows you, but your account has no role in this console. Ask those who operate "
    "the gateway for one, and sign in again."
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A user of an identity provider. `subject` is its `sub` claim, and `name` the claim that is shown."""

    subject: str
    name: str
    role: Role

    @property
    def actor(self) -> str:
        """Return who makes the user's changes, for the history and the audit log.

        No other kind of sign-in has this form, whatever name a user may take at the provider.
        """
        return f"console:{self.role.name.lower()}:oidc:{self.name}"


def identity_of(settings: ConsoleOidc, claims: Mapping[str, Any]) -> Identity:
    """Return the user of verified claims. Raises SignInFailed for one without a subject or a role."""
    subject = _name(claims.get("sub"))
    if subject is None:
        raise SignInFailed(403, NO_ROLE, "the ID token has no subject that can be shown")
    values = role_values(claims, settings.roles_claim)
    if not values.isdisjoint(settings.operator_values):
        role = Role.OPERATOR
    elif not values.isdisjoint(settings.viewer_values):
        role = Role.VIEWER
    else:
        raise SignInFailed(403, NO_ROLE, _why_without_role(settings.roles_claim, claims, subject))
    return Identity(subject, _name(claims.get(settings.name_claim)) or subject, role)


def role_values(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    """Return the values of the claim that decides on the role.

    A name with dots that is no claim leads into objects.
    """
    *path, last = [name] if name in claims else name.split(".")
    value: Any = claims
    for word in path:
        value = value.get(word) if isinstance(value, Mapping) else None
    return claim_values(value, last) if isinstance(value, Mapping) else frozenset()


def _why_without_role(name: str, claims: Mapping[str, Any], subject: str) -> str:
    absent = claims.get("_claim_names")
    if isinstance(absent, Mapping) and name in absent:
        return f"the provider left {name} out, because {subject} has too many of them; use roles instead"
    if name == EMAIL and EMAIL in claims and not is_verified_email(claims):
        return f"the provider has not verified the address of {subject}"
    if not role_values(claims, name):
        return f"the ID token of {subject} has no values in {name}"
    return f"no value in {name} of {subject} has a role"


def _name(value: Any) -> str | None:
    """Return a claim that can be shown as a name."""
    is_name = isinstance(value, str) and 0 < len(value) <= MAX_NAME_LENGTH and value.isprintable()
    return value if is_name else None
