"""The rules of grants, as the native module evaluates them.

In: the conditions and properties of a `Rule`. Out: a native rule, parsed once for all requests. A condition
that cannot be a rule is refused when the configuration is read.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from threading import Lock

from gateway import _native
from gateway.catalog.catalog import SharedTable
from gateway.catalog.grants import Rule
from gateway.config import Config, ConfigError
from gateway.errors import PermissionDenied

RULES_BYTES = 128 * 1024 * 1024
"""The memory of parsed rules: 20,000 recipients with one property each take a fifth of it."""
RULE_BYTES = 1024
"""About what a rule of one short condition takes, without its texts."""


class InvalidRule(PermissionDenied):
    """Raised for a table whose rule is not a valid condition.

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


class RuleCache:
    """Parsed rules, the least recently used first, bounded in bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[Rule, _native.Rule] = OrderedDict()
        # Held for a few lookups only.
        self._lock = Lock()

    def rule(self, rule: Rule) -> _native.Rule:
        """Return a parsed rule. Raises ValueError."""
        with self._lock:
            known = self._known.get(rule)
            if known is not None:
                self._known.move_to_end(rule)
                return known
        parsed = _native.Rule(list(rule.conditions), dict(rule.properties))
        with self._lock:
            if rule not in self._known:
                self._bytes += _rule_bytes(rule)
            self._known[rule] = parsed
            while self._bytes > self._max_bytes:
                removed, _ = self._known.popitem(last=False)
                self._bytes -= _rule_bytes(removed)
        return parsed


def _rule_bytes(rule: Rule) -> int:
    """Estimate the memory of a rule: a parsed condition takes several times its text."""
    properties = sum(sys.getsizeof(name) + sys.getsizeof(value) for name, value in rule.properties)
    return RULE_BYTES + properties + 16 * sum(map(sys.getsizeof, rule.conditions))


native_rule = RuleCache(RULES_BYTES).rule


def check_rules(config: Config) -> None:
    """Check the conditions of all grants, without reading tables. Raises ConfigError."""
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
