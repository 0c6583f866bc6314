"""The rules of grants, as the native module evaluates them.

In: the conditions and properties of a `Rule`. Out: a native rule, parsed once for all requests. A condition
that cannot be a rule is refused when the configuration is read.
"""

from __future__ import annotations

from functools import lru_cache

from gateway import _native
from gateway.access.catalog import SharedTable
from gateway.access.grants import Rule
from gateway.config import Config, ConfigError
from gateway.errors import PermissionDenied

MAX_RULES = 4096


class InvalidRule(PermissionDenied):
    """Raised for a table whose rule is no condition.

    Attributes:
        detail: the reason, for the log.

    """

    def __init__(self, detail: str) -> None:
        super().__init__("the rule of your grant is not valid; the provider must correct it")
        self.detail = detail


def rule_of(table: SharedTable) -> _native.Rule | None:
    """Return the rule of a recipient's table; None for a whole table. Raises InvalidRule."""
    if table.rule is None:
        return None
    try:
        return native_rule(table.rule)
    except ValueError as reason:
        raise InvalidRule(str(reason)) from None


@lru_cache(MAX_RULES)
def native_rule(rule: Rule) -> _native.Rule:
    """Parse a rule. Raises ValueError."""
    return _native.Rule(list(rule.conditions), dict(rule.properties))


def check_rules(config: Config) -> None:
    """Check the conditions of all grants, as far as that needs no table. Raises ConfigError."""
    for recipient in config.gateway.recipients:
        properties = tuple(sorted(recipient.properties.items()))
        for index, grant in enumerate(recipient.shares):
            if grant.condition is None:
                continue
            try:
                native_rule(Rule((grant.condition,), properties))
            except ValueError as reason:
                key = f"gateway.recipients.{recipient.name}.shares[{index}].condition"
                raise ConfigError("configuration", key, str(reason)) from None
