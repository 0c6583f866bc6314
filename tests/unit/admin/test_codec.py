"""Requests are decoded into their types or refused; answers are encoded as before."""

import json
import string
from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admin.app import OPERATIONS
from gateway.admin.codec import MAX_REASON_LENGTH, decode_body, decode_query, encode
from gateway.admin.messages import Addition, GrantOptions, Issued, Recipient, Rotation, Token
from gateway.encoding import json_bytes
from gateway.errors import GatewayError, InvalidParameter, MalformedRequest
from gateway.protocol.profile import profile

BODIES = [operation.types["body"] for operation in OPERATIONS if "body" in operation.types]
WHOLE = {
    "name": "alice",
    "comment": "of the sales team",
    "shares": ["sales", "*"],
    "networks": ["192.0.2.0/24"],
    "expiresInSeconds": 60,
    "allowAbsent": True,
}
HOSTILE = [
    b"{",
    b"null",
    b"[" * 60_000,
    b'{"name":' * 8000,
    b'{"other":' * 7000,
    b'{"name": "\xff"}',
    b'{"name": "\\ud800"}',
    b'{"name": "x", "expiresInSeconds": ' + b"9" * 60_000 + b"}",
    b'{"name": "x", "expiresInSeconds": NaN}',
    b'{"name": "x"} {}',
    b'\xef\xbb\xbf{"name": "x"}',
    b'{"name": "x", "' + b"z" * 60_000 + b'": 1}',
    b"\0" * 60_000,
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize("body", HOSTILE, ids=lambda body: repr(body[:24]))
@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.__name__)
def test_a_hostile_body_is_refused_with_a_short_reason(kind, body):
    with pytest.raises(GatewayError) as raised:
        decode_body(body, kind)
    assert len(str(raised.value)) <= MAX_REASON_LENGTH


@given(st.binary())
def test_any_bytes_are_decoded_or_refused(data):
    for kind in BODIES:
        decode_or_refuse(data, kind)


@given(st.dictionaries(st.sampled_from([*WHOLE, "oldExpiresInSeconds", "x"]), JSON))
def test_values_of_any_type_are_decoded_or_refused(body):
    data = json.dumps(body).encode()
    for kind in BODIES:
        decode_or_refuse(data, kind)


def decode_or_refuse(data, kind):
    with suppress(MalformedRequest, InvalidParameter):
        assert isinstance(decode_body(data, kind), kind)


@pytest.mark.parametrize("absent", WHOLE)
@pytest.mark.parametrize("value", [None, 7, "7", ["7"], [7], True, {}, 0.5])
def test_one_field_of_another_value_is_decoded_only_if_its_type_accepts_it(absent, value):
    accepted = {
        "name": str,
        "comment": str,
        "shares": list,
        "networks": list,
        "expiresInSeconds": int,
        "allowAbsent": bool,
    }[absent]
    fits = (type(value) is accepted and value != [7]) or (absent == "expiresInSeconds" and value is None)
    data = orjson.dumps(WHOLE | {absent: value})
    if fits:
        assert isinstance(decode_body(data, Addition), Addition)
    else:
        with pytest.raises(MalformedRequest, match=rf"at `\$\.{absent}(\[0\])?`"):
            decode_body(data, Addition)


def test_a_body_without_fields_may_be_empty():
    assert decode_body(b"", Rotation) == decode_body(b"{}", Rotation) == Rotation()


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("false", False), ("1", True)])
def test_a_boolean_of_a_query_string(text, value):
    assert decode_query({"allowAbsent": text}, GrantOptions) == GrantOptions(value)


def test_a_parameter_that_is_no_boolean_is_refused():
    with pytest.raises(MalformedRequest, match=r"Expected `bool`, got `str` - at `\$\.allowAbsent`"):
        decode_query({"allowAbsent": "maybe"}, GrantOptions)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(string.printable))


@given(TEXTS, st.integers(0, 2**53), st.lists(TEXTS))
def test_an_answer_has_the_bytes_of_its_fields_as_json(text, time_ms, texts):
    recipient = Recipient(
        text, text, time_ms, (Token(time_ms, None),), tuple(texts), (), (), (), False, (), {}
    )
    assert encode(recipient) == json_bytes(
        {
            "name": text,
            "comment": text,
            "createdMs": time_ms,
            "tokens": [{"createdMs": time_ms, "expiresMs": None}],
            "shares": texts,
            "networks": [],
            "federationPolicies": [],
            "clients": [],
            "bearerTokensForbidden": False,
            "grants": [],
            "properties": {},
        }
    )


def test_a_profile_without_an_end_has_no_such_field():
    assert encode(Issued("alice", profile("https://share.example", "t"))) == (
        b'{"recipient":"alice","profile":'
        b'{"shareCredentialsVersion":1,"endpoint":"https://share.example","bearerToken":"t"}}'
    )
