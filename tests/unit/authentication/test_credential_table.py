"""Bearer tokens: their recipients, their expiry, and one answer for all that are not valid."""

from datetime import UTC, datetime

import pytest

from gateway.authentication.credential_table import CredentialTable, changed_recipients, token_hash
from gateway.config import loads

EXPIRES = datetime(2027, 6, 30, tzinfo=UTC)
EXPIRES_MS = int(EXPIRES.timestamp() * 1000)
CONFIG = loads(f"""
version: 1
authorization: {{bearerToken: universal}}
shares: [{{name: Sales}}, {{name: other}}]
gateway:
  recipients:
  - name: alice
    tokens:
    - {{sha256: {token_hash("alice-old").hex()}, expires: {EXPIRES.isoformat()}}}
    - {{sha256: {token_hash("alice-new").hex().upper()}}}
    shares: [SALES]
""")


@pytest.fixture
def table() -> CredentialTable:
    return CredentialTable.of(CONFIG)


def test_each_live_token_of_a_recipient_opens(table: CredentialTable) -> None:
    for token in ("alice-old", "alice-new"):
        found = table.find(token_hash(token), now_ms=EXPIRES_MS - 1)
        assert found is not None
        assert (found.recipient.name, found.recipient.shares) == ("alice", frozenset({"sales"}))


def test_a_token_ends_at_its_expiry(table: CredentialTable) -> None:
    assert table.find(token_hash("alice-old"), now_ms=EXPIRES_MS) is None
    assert table.find(token_hash("alice-new"), now_ms=EXPIRES_MS) is not None


def test_the_universal_token_is_granted_every_share(table: CredentialTable) -> None:
    found = table.find(token_hash("universal"), now_ms=0)
    assert found is not None
    assert found.recipient.shares == frozenset({"*"})


def test_a_hash_that_shares_a_prefix_opens_nothing(table: CredentialTable) -> None:
    near = token_hash("universal")[:31] + b"\0"
    assert table.find(near, now_ms=0) is None


def test_a_stored_hash_is_not_accepted_as_a_token(table: CredentialTable) -> None:
    assert table.find(token_hash(token_hash("universal").hex()), now_ms=0) is None


def test_hashes_do_not_print(table: CredentialTable) -> None:
    assert token_hash("universal").hex() not in repr(vars(table))
    assert repr(token_hash("universal")) not in repr(vars(table)["_by_prefix"])


def test_recipients_change_with_their_grants_and_networks_and_when_they_are_gone() -> None:
    def table(**recipients: str) -> CredentialTable:
        lines = [
            f"  - {{name: {name}, tokens: [{{sha256: {token_hash(name).hex()}}}], {keys}}}"
            for name, keys in recipients.items()
        ]
        return CredentialTable.of(
            loads("version: 1\nshares: [{name: a}, {name: b}]\ngateway:\n  recipients:\n" + "\n".join(lines))
        )

    before = table(same="shares: [a]", grant="shares: [a]", network="shares: [a]", gone="shares: [a]")
    after = table(
        same="shares: [A]",
        grant="shares: [b]",
        network="shares: [a], networks: [192.0.2.0/24]",
        new="shares: [a]",
    )
    assert changed_recipients(before, after) == {"grant", "network", "gone"}
    assert changed_recipients(before, before) == set()
