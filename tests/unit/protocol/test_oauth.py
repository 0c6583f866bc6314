"""Token requests as clients send them."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import GatewayError, InvalidClient, MalformedRequest, UnsupportedGrant
from gateway.protocol.oauth import FORM_CONTENT_TYPE, MAX_FIELDS, TokenRequest

GRANT = b"grant_type=client_credentials"
FOUND = TokenRequest("c-1", "s_2~")


def basic(text: str = "c-1:s_2~", scheme: str = "Basic") -> list[str]:
    return [f"{scheme} {b64encode(text.encode()).decode()}"]


@pytest.mark.parametrize(
    ("content_type", "authorization", "body"),
    [
        (FORM_CONTENT_TYPE, basic(), GRANT),
        # The official Python and Spark clients do not encode the scope.
        (FORM_CONTENT_TYPE, basic(), GRANT + b"&scope=https://example.com/.default all:read"),
        (f"{FORM_CONTENT_TYPE.title()}; charset=utf-8", basic(scheme="basic"), GRANT + b"&scope="),
        (None, basic(), GRANT + b"&client_id=c-1&unknown=x&a+b=%C3%A9"),
        (FORM_CONTENT_TYPE, [], GRANT + b"&client_id=c-1&client_secret=s_2%7E"),
    ],
)
def test_a_client_is_named_by_the_header_or_the_form(
    content_type: str | None, authorization: list[str], body: bytes
) -> None:
    assert TokenRequest.parse(content_type, authorization, body) == FOUND


@pytest.mark.parametrize("encoded", ["c%2D1:s%5F2%7E", "c-1:s_2%7e", "%63-1:s_2~"])
def test_an_encoded_id_and_secret_are_decoded(encoded: str) -> None:
    request = TokenRequest.parse(FORM_CONTENT_TYPE, basic(encoded), GRANT)
    assert (request.client_id, request.secret) == (FOUND.client_id, FOUND.secret)
    assert request.as_sent == TokenRequest(*encoded.split(":"))


@pytest.mark.parametrize("sent", ["c-1:%ff", "c-1:100%", "c-1:s_2~"])
def test_what_is_not_encoded_is_taken_as_it_is_sent(sent: str) -> None:
    assert TokenRequest.parse(FORM_CONTENT_TYPE, basic(sent), GRANT) == TokenRequest(*sent.split(":"))


def test_several_resources_and_audiences_are_ignored() -> None:
    body = GRANT + b"&resource=https://a&resource=https://b&audience=a&audience=b"
    assert TokenRequest.parse(FORM_CONTENT_TYPE, basic(), body) == FOUND


@pytest.mark.parametrize(
    ("content_type", "authorization", "body", "error"),
    [
        (FORM_CONTENT_TYPE, [], b"", InvalidClient),
        (FORM_CONTENT_TYPE, [], GRANT, InvalidClient),
        (FORM_CONTENT_TYPE, [], GRANT + b"&client_id=c-1", InvalidClient),
        (FORM_CONTENT_TYPE, [], GRANT + b"&client_id=c-1&client_secret=", InvalidClient),
        (FORM_CONTENT_TYPE, basic("no colon"), GRANT, InvalidClient),
        (FORM_CONTENT_TYPE, ["Basic"], GRANT, InvalidClient),
        (FORM_CONTENT_TYPE, ["Basic !"], GRANT, InvalidClient),
        (FORM_CONTENT_TYPE, ["Basic abc"], GRANT, InvalidClient),
        (FORM_CONTENT_TYPE, ["Basic /w=="], GRANT, InvalidClient),
        (FORM_CONTENT_TYPE, ["Bearer abc"], GRANT, InvalidClient),
        (FORM_CONTENT_TYPE, basic(), b"", MalformedRequest),
        (FORM_CONTENT_TYPE, basic(), b"grant_type=", MalformedRequest),
        (FORM_CONTENT_TYPE, basic(), b"grant_type=password", UnsupportedGrant),
        (FORM_CONTENT_TYPE, basic(), GRANT + b"&" + GRANT, MalformedRequest),
        (FORM_CONTENT_TYPE, basic() * 2, GRANT, MalformedRequest),
        (FORM_CONTENT_TYPE, basic(), GRANT + b"&client_id=c-1&client_secret=s_2~", MalformedRequest),
        (FORM_CONTENT_TYPE, basic(), GRANT + b"&client_id=c-2", MalformedRequest),
        (FORM_CONTENT_TYPE, basic(), GRANT + b"&a=\xff", MalformedRequest),
        (FORM_CONTENT_TYPE, basic(), GRANT + b"&a=%ff", MalformedRequest),
        (
            FORM_CONTENT_TYPE,
            basic(),
            b"&".join(b"a%d=b" % n for n in range(MAX_FIELDS + 1)),
            MalformedRequest,
        ),
        ("application/json", basic(), GRANT, MalformedRequest),
    ],
)
def test_other_requests_are_refused(
    content_type: str, authorization: list[str], body: bytes, error: type[GatewayError]
) -> None:
    with pytest.raises(GatewayError) as refused:
        TokenRequest.parse(content_type, authorization, body)
    assert type(refused.value) is error
    # The characters of `error_description` (RFC 6749, section 5.2).
    assert not set(str(refused.value)) - {chr(code) for code in range(0x20, 0x7F)} | {'"', "\\"} & set(
        str(refused.value)
    )


@given(st.lists(st.text(max_size=40), max_size=2), st.binary(max_size=200))
def test_no_request_is_more_than_refused(authorization: list[str], body: bytes) -> None:
    for prefix in (b"", GRANT + b"&"):
        try:
            found = TokenRequest.parse(FORM_CONTENT_TYPE, authorization, prefix + body)
        except (InvalidClient, MalformedRequest, UnsupportedGrant):
            continue
        assert found.client_id is not None


def test_the_secret_is_not_printed() -> None:
    assert "s_2~" not in repr(FOUND)
