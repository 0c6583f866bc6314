"""The recipient of a name, for commands: of the configuration, or of the database, which is not changed."""

from __future__ import annotations

from gateway.authentication.credential_table import configured_recipients
from gateway.catalog.catalog import Recipient
from gateway.config import Config
from gateway.paths import exists


class UnknownRecipient(OSError):
    """Raised for a name that no recipient has, in the configuration and in the database."""


def named_recipient(config: Config, name: str) -> Recipient:
    """Return a recipient by its name in any case. Blocks.

    Raises UnknownRecipient, and DatabaseError for a database that cannot be read.
    """
    for recipient in configured_recipients(config):
        if recipient.name.casefold() == name.casefold():
            return recipient
    place = config.database_place
    if not config.has_database or (place.path is not None and not exists(place.path)):
        raise UnknownRecipient(
            f"gateway.recipients has no recipient {name!a}, and there is no database of them"
        )
    # A command without a database starts sooner.
    from gateway.database.schema import recipient_key  # noqa: PLC0415
    from gateway.governance.stored_recipients import read_once  # noqa: PLC0415

    stored, key = read_once(place), recipient_key(name)
    if key in stored.unreadable:
        raise UnknownRecipient(f"recipient {name!a} of the database is refused: {stored.unreadable[key]}")
    if key not in stored.by_key:
        raise UnknownRecipient(f"neither gateway.recipients nor the database has a recipient {name!a}")
    return stored.by_key[key].recipient
