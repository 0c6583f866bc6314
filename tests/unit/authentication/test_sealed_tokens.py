"""Sealed tokens open only for the recipient and purpose that they were made for."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.authentication.sealed_tokens import InvalidToken, Page, Refresh, Sealer, digest
from gateway.config import Secret, TokenKey

NOW_MS = 1_700_000_000_000
KEYS = [
    TokenKey("k1", Secret("first secret of a server")),
    TokenKey("k2", Secret("second secret of a server")),
]
VALUE = {"table": "t", "place": "0:17", "digest": "d"}


def seal(sealer: Sealer, **changes: object) -> str:
    return sealer.seal("page", "alice", VALUE | changes, expires_ms=NOW_MS + 1000)


def test_a_token_opens_for_its_bearer_until_it_expires() -> None:
    sealer = Sealer(KEYS)
    token = seal(sealer)
    assert sealer.open("page", "alice", token, now_ms=NOW_MS + 999) == VALUE
    with pytest.raises(InvalidToken):
        sealer.open("page", "alice", token, now_ms=NOW_MS + 1000)


def test_a_token_of_another_recipient_or_purpose_is_refused() -> None:
    sealer = Sealer(KEYS)
    token = seal(sealer)
    with pytest.raises(InvalidToken):
        sealer.open("page", "bob", token, now_ms=NOW_MS)
    with pytest.raises(InvalidToken, match="refreshToken"):
        sealer.open("refresh", "alice", token, now_ms=NOW_MS)


def test_every_flipped_bit_is_refused() -> None:
    sealer = Sealer(KEYS)
    raw = bytearray(_raw(seal(sealer)))
    for bit in range(len(raw) * 8):
        raw[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidToken):
            sealer.open("page", "alice", base64.urlsafe_b64encode(raw).rstrip(b"=").decode(), now_ms=NOW_MS)
        raw[bit // 8] ^= 1 << bit % 8


def test_every_changed_character_is_refused() -> None:
    sealer = Sealer(KEYS)
    token = seal(sealer)
    for index in range(len(token)):
        for other in "A_b-9 +=\n":
            changed = token[:index] + other + token[index + 1 :]
            if changed != token:
                with pytest.raises(InvalidToken):
                    sealer.open("page", "alice", changed, now_ms=NOW_MS)


@pytest.mark.parametrize("length", range(8))
def test_unused_bits_of_the_last_character_are_no_second_spelling(length: int) -> None:
    sealer = Sealer(KEYS)
    token = seal(sealer, padding="x" * length)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for last in alphabet.replace(token[-1], ""):
        with pytest.raises(InvalidToken):
            sealer.open("page", "alice", token[:-1] + last, now_ms=NOW_MS)


@given(st.text() | st.binary().map(lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("=")))
def test_noise_is_refused(text: str) -> None:
    with pytest.raises(InvalidToken):
        Sealer(KEYS).open("page", "alice", text, now_ms=NOW_MS)


def test_keys_rotate_the_first_seals_and_all_open() -> None:
    old, new = Sealer(KEYS[:1]), Sealer([KEYS[1], KEYS[0]])
    assert new.open("page", "alice", seal(old), now_ms=NOW_MS) == VALUE
    with pytest.raises(InvalidToken):
        old.open("page", "alice", seal(new), now_ms=NOW_MS)


def test_a_reused_key_id_with_another_secret_opens_nothing() -> None:
    other = Sealer([TokenKey("k1", Secret("another secret of a server"))])
    with pytest.raises(InvalidToken):
        other.open("page", "alice", seal(Sealer(KEYS)), now_ms=NOW_MS)


def test_without_keys_each_process_has_its_own() -> None:
    one, two = Sealer([]), Sealer([])
    token = seal(one)
    assert one.open("page", "alice", token, now_ms=NOW_MS) == VALUE
    with pytest.raises(InvalidToken):
        two.open("page", "alice", token, now_ms=NOW_MS)


def test_tokens_need_no_encoding_in_a_url() -> None:
    for _ in range(50):
        assert seal(Sealer(KEYS)).replace("-", "a").replace("_", "a").isalnum()


def test_keys_for_other_uses_differ_and_follow_the_secrets() -> None:
    sealer = Sealer(KEYS)
    assert sealer.derived_keys(b"files")[:2] == Sealer(KEYS).derived_keys(b"files")[:2]
    assert sealer.derived_keys(b"files") == Sealer(KEYS, sealer.made).derived_keys(b"files")
    assert len({*sealer.derived_keys(b"files"), *sealer.derived_keys(b"token")}) == 6


def test_a_digest_depends_on_parameters_and_not_on_their_order() -> None:
    assert digest({"a": 1, "b": [None, "x"]}) == digest({"b": [None, "x"], "a": 1})
    assert digest(["x", None]) != digest([None, "x"])


@pytest.mark.parametrize(
    ("identity", "cursor"),
    [
        ("7~0f8a3b1c5d7e9f02", "0.1"),
        ("7@5c4096.0f8a3b1c5d7e9f02~0f8a3b1c5d7e9f02", "12.345.6+7.8"),
        (
            f"{2**63 - 1}@{2**63 - 1}m{2**32}.{2**64 - 1}.0f8a3b1c5d7e9f02~0f8a3b1c5d7e9f02",
            f"{2**32 - 1}.{2**32 - 1}.{2**64 - 1}+{2**64 - 1}.{2**64 - 1}",
        ),
    ],
)
def test_the_length_of_a_page_token_does_not_show_the_position(identity: str, cursor: str) -> None:
    sealer = Sealer(KEYS)
    page, other = (
        Page("t", "m", *position, "parquet", digest([]), NOW_MS + 1000)
        for position in ((identity, [7], cursor), ("7@5c10.0f8a3b1c5d7e9f02", [7], "9.9"))
    )
    token = page.seal(sealer, "alice")
    assert len(token) == len(other.seal(sealer, "alice"))
    assert Page.open(sealer, "alice", token, table="t", parameters=[], now_ms=NOW_MS) == page


def _raw(token: str) -> bytes:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def test_a_key_that_was_made_at_the_start_is_every_workers_and_opens_after_keys_are_configured() -> None:
    made = b"m" * 32
    before, other, configured = Sealer([], made), Sealer([], made), Sealer(KEYS, made)
    text = seal(before)
    for sealer in (before, other, configured):
        assert sealer.open("page", "alice", text, now_ms=NOW_MS) == VALUE
    with pytest.raises(InvalidToken):
        Sealer(KEYS).open("page", "alice", text, now_ms=NOW_MS)
    with pytest.raises(InvalidToken):
        Sealer([], made).open("page", "alice", seal(configured), now_ms=NOW_MS)


@pytest.mark.parametrize(
    "value", [{}, {"place": "", "later": 1}, {"table": "t", "metadata_id": "m", "version": 1, "later": 1}]
)
def test_tokens_with_the_fields_of_another_release_are_refused(value: dict[str, object]) -> None:
    sealer = Sealer([])
    page, refresh = (sealer.seal(purpose, "acme", value, expires_ms=1) for purpose in ("page", "refresh"))
    with pytest.raises(InvalidToken, match="pageToken"):
        Page.open(sealer, "acme", page, table="t", parameters=[], now_ms=0)
    with pytest.raises(InvalidToken, match="refreshToken"):
        Refresh.open(sealer, "acme", refresh, table="t", now_ms=0)
