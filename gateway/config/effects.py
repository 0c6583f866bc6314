"""When a changed key takes effect in a running server: one table, by which a reload is accepted or refused.

A key's row is the longest one that it begins with. The configuration page shows those that are not `AT_ONCE`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from gateway.config.database import Database
from gateway.config.known_keys import camel_case
from gateway.config.sections import Config


class Effect(StrEnum):
    """When a changed value is used."""

    AT_ONCE = "from the next request"
    NEW_CONNECTIONS = "for connections that are made afterwards"
    AT_SHUTDOWN = "at the next shutdown"
    NONE = "never: the key has no effect"
    RESTART = "after a restart; the reload is refused as a whole and names the key"


EFFECTS: Mapping[str, Effect] = {
    "version": Effect.NONE,
    "shares": Effect.AT_ONCE,
    "authorization": Effect.AT_ONCE,
    "ssl": Effect.RESTART,
    "host": Effect.RESTART,
    "port": Effect.RESTART,
    "endpoint": Effect.RESTART,
    "preSignedUrlTimeoutSeconds": Effect.AT_ONCE,
    "queryTablePageSizeLimit": Effect.AT_ONCE,
    "queryTablePageTokenTtlMs": Effect.AT_ONCE,
    "refreshTokenTtlMs": Effect.AT_ONCE,
    "requestTimeoutSeconds": Effect.AT_ONCE,
    "evaluatePredicateHints": Effect.AT_ONCE,
    "evaluateJsonPredicateHints": Effect.AT_ONCE,
    "evaluateJsonPredicateHintsV2": Effect.AT_ONCE,
    "stalenessAcceptable": Effect.AT_ONCE,
    "deltaTableCacheSize": Effect.NONE,
    "temporaryCredentialValiditySeconds": Effect.AT_ONCE,
    "gateway.anonymous": Effect.AT_ONCE,
    "gateway.endpointAliases": Effect.RESTART,
    "gateway.publicUrl": Effect.AT_ONCE,
    "gateway.oidc": Effect.AT_ONCE,
    "gateway.oauth": Effect.AT_ONCE,
    "gateway.recipients": Effect.AT_ONCE,
    "gateway.database": Effect.RESTART,
    "gateway.database.password": Effect.NEW_CONNECTIONS,
    "gateway.database.maxOutageSeconds": Effect.AT_ONCE,
    "gateway.recipientsDatabase": Effect.RESTART,
    "gateway.trustedProxies": Effect.AT_ONCE,
    "gateway.storages": Effect.AT_ONCE,
    "gateway.tokenKeys": Effect.AT_ONCE,
    "gateway.allowedRoots": Effect.AT_ONCE,
    "gateway.maxStalenessSeconds": Effect.AT_ONCE,
    "gateway.drainSeconds": Effect.AT_SHUTDOWN,
    "gateway.drainDelaySeconds": Effect.AT_SHUTDOWN,
    "gateway.cache": Effect.RESTART,
    "gateway.compression": Effect.AT_ONCE,
    "gateway.cors": Effect.AT_ONCE,
    "gateway.limits": Effect.AT_ONCE,
    "gateway.limits.idleConnectionSeconds": Effect.NEW_CONNECTIONS,
    "gateway.storageFaults": Effect.AT_ONCE,
    "gateway.audit": Effect.RESTART,
    "gateway.admin": Effect.RESTART,
    "gateway.admin.oidc": Effect.AT_ONCE,
    "gateway.tracing": Effect.RESTART,
}


def changed_fixed_keys(running: Config, loaded: Config) -> list[str]:
    """Return the rows of changed keys that need a restart."""
    return [
        row
        for row, effect in EFFECTS.items()
        if effect is Effect.RESTART and _value(running, row) != _value(loaded, row)
    ]


def _value(config: Config, row: str) -> Any:
    """Return the value of a row; of a section, the values of its keys without a row of their own."""
    value: Any = config
    for word in row.split("."):
        value = getattr(value, re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", word))
    if isinstance(value, Database):
        # The next connection uses the user, the password and the options of the URL.
        return value.server
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    fields = (field.name for field in dataclasses.fields(value))
    return [getattr(value, name) for name in fields if f"{row}.{camel_case(name)}" not in EFFECTS]
