"""Tokens of identity providers: what is refused, and why."""

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from support.identity_provider import private_key, public_jwk, signed, unsigned

from gateway.authentication.policies import TokenRefused
from gateway.config.oidc import ALGORITHMS
from gateway.oidc.identity_token import IdentityToken, SigningKeys
from gateway.times import DAY_SECONDS

NOW = 1_700_000_000.0
CLAIMS = {"iss": "https://idp.example.com", "sub": "a", "aud": "b", "iat": NOW, "exp": NOW + 3600}


def keys(*described: dict[str, Any]) -> SigningKeys:
    return SigningKeys.parse(json.dumps({"keys": described or [public_jwk("RS256", "k1")]}).encode())


def verify(text: str, known: SigningKeys | None = None, max_lifetime_seconds: int = DAY_SECONDS) -> Any:
    token = IdentityToken.parse(text)
    assert token is not None
    found = (known or keys()).find(token.key_id, token.algorithm)
    if not found:
        raise TokenRefused("keys", "")
    return token.claims(found[0], now_seconds=NOW, max_lifetime_seconds=max_lifetime_seconds)


def reason(text: str, known: SigningKeys | None = None, **options: Any) -> str:
    with pytest.raises(TokenRefused) as refused:
        verify(text, known, **options)
    return refused.value.reason


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_listed_algorithm_is_verified(algorithm: str) -> None:
    known = keys(public_jwk(algorithm, "k1"))
    text = signed(CLAIMS, algorithm=algorithm)
    assert verify(text, known) == CLAIMS
    head, claims, signature = text.split(".")
    other = ("A" if signature[5] != "A" else "B") + signature[6:]
    assert reason(f"{head}.{claims}.{signature[:5]}{other}", known) == "signature"
    assert (
        reason(signed(CLAIMS, algorithm=algorithm, name="another", header={"kid": "k1"}), known)
        == "signature"
    )


@pytest.mark.parametrize(
    "text", ["", "a", "a.b", "a.b.c", "..", "e30", "bnVsbA.e30.x", "W10.e30.x", "\udcff.b.c"]
)
def test_other_texts_are_no_tokens_of_an_identity_provider(text: str) -> None:
    assert IdentityToken.parse(text) is None


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_is_more_than_refused(header: str, claims: str) -> None:
    for text in (f"{header}.{claims}.x", unsigned({"alg": header, "kid": claims}, {"iss": claims}, header)):
        try:
            token = IdentityToken.parse(text)
        except TokenRefused:
            continue
        if token is not None:
            assert keys().find(token.key_id, token.algorithm) == [] or token.algorithm in ALGORITHMS


def test_a_token_without_a_signature_or_with_a_secret_one_has_no_key() -> None:
    public = private_key("RS256", "k1").public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert reason(unsigned({"alg": "none", "kid": "k1"}, CLAIMS, "")) == "keys"
    for secret in (pem, public_jwk("RS256", "k1")["n"].encode()):
        forged = jwt.api_jws.PyJWS()
        forged._algorithms["HS256"].prepare_key = lambda key: key
        text = forged.encode(json.dumps(CLAIMS).encode(), secret, "HS256", headers={"kid": "k1"})
        assert reason(text) == "keys"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"crit": ["exp"]}, "header"),
        ({"crit": []}, "header"),
        ({"typ": "logout+jwt"}, "header"),
        ({"kid": "another"}, "keys"),
    ],
)
def test_a_header_that_is_not_understood_is_refused(header: dict[str, Any], expected: str) -> None:
    assert reason(signed(CLAIMS, header=header)) == expected


@pytest.mark.parametrize(
    "header", [{"alg": 5}, {"alg": None}, {"alg": "RS256", "kid": 7}, {"alg": "RS256", "kid": None}]
)
def test_a_header_of_wrong_types_is_refused(header: dict[str, Any]) -> None:
    assert reason(unsigned(header, CLAIMS, "x")) == "header"


def test_an_encrypted_token_is_refused() -> None:
    assert reason(unsigned({"alg": "RSA-OAEP", "enc": "A256GCM"}, CLAIMS, "a", "b", "c")) == "header"


@pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt", "application/at+jwt", None])
def test_the_types_of_access_tokens_are_accepted(typ: str | None) -> None:
    assert verify(signed(CLAIMS, header={"typ": typ})) == CLAIMS


def test_keys_in_the_header_are_ignored() -> None:
    own = public_jwk("RS256", "attacker")
    header = {
        "kid": "k1",
        "jwk": own,
        "jku": "https://attacker.example.com/keys",
        "x5u": "https://a",
        "x5c": ["a"],
    }
    assert reason(signed(CLAIMS, name="attacker", header=header)) == "signature"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"exp": None}, "expired"),
        ({"exp": NOW - 61}, "expired"),
        ({"exp": NOW - 59, "iat": NOW - 100}, None),
        ({"exp": "tomorrow"}, "expired"),
        ({"exp": True}, "expired"),
        ({"exp": 10**19}, "expired"),
        ({"nbf": NOW + 59}, None),
        ({"nbf": NOW + 61}, "expired"),
        ({"nbf": "now"}, "expired"),
        ({"iat": NOW + 61}, "expired"),
        ({"iat": None, "exp": NOW + DAY_SECONDS + 1}, "expired"),
        ({"iat": NOW - 10, "exp": NOW - 9 + DAY_SECONDS}, "expired"),
        ({"iat": NOW - 10, "exp": NOW - 10 + DAY_SECONDS}, None),
    ],
)
def test_the_times_of_a_token_are_checked(changes: dict[str, Any], expected: str | None) -> None:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    assert (verify(signed(claims)) and None if expected is None else reason(signed(claims))) == expected


@pytest.mark.parametrize("changes", [{"iss": None}, {"iss": 7}, {"iss": ["https://idp.example.com"]}])
def test_a_token_without_an_issuer_is_refused(changes: dict[str, Any]) -> None:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    assert reason(unsigned({"alg": "RS256", "kid": "k1"}, claims, "x")) == "issuer"


@pytest.mark.parametrize(
    "described",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "k1"},
        public_jwk("RS256", "k1", use="enc"),
        public_jwk("RS256", "k1", key_ops=["encrypt"]),
        {**public_jwk("RS256", "k1"), "key_ops": None},
        public_jwk("RS256", "k1", key_ops=7),
        public_jwk("RS256", "k1", key_ops="verify"),
        public_jwk("RS256", "k1", alg="HS256"),
        public_jwk("RS256", "k1", n="AQAB"),
        public_jwk("ES256", "k1", crv="P-384"),
        public_jwk("RS256", "k1", kid=7),
        {"kty": "EC", "crv": "P-521", "kid": "k1"},
        {"kty": ["RSA"]},
        "a text",
        None,
    ],
)
def test_keys_that_cannot_verify_are_left_out(described: Any) -> None:
    with pytest.raises(ValueError, match="no key that can verify"):
        keys(described)
    good = public_jwk("RS256", "good")
    assert len(keys(described, good)) == 1


def test_a_short_rsa_key_is_left_out() -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    described = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(short.public_key()))
    with pytest.raises(ValueError, match="no key"):
        keys({**described, "kid": "k1"})


def test_without_a_key_id_the_few_keys_of_the_algorithm_are_tried() -> None:
    few = keys(*(public_jwk("RS256", f"k{number}") for number in range(4)), public_jwk("ES256", "e"))
    assert len(few.find(None, "RS256")) == 4
    many = keys(*(public_jwk("RS256", "k1", kid=f"k{number}") for number in range(5)))
    assert many.find(None, "RS256") == []
    assert len(many.find("k3", "RS256")) == 1


def test_a_key_serves_only_its_algorithm() -> None:
    only = keys(public_jwk("RS256", "k1", alg="RS256"))
    assert only.find("k1", "RS256")
    assert only.find("k1", "PS256") == only.find("k1", "ES256") == only.find("k1", "HS256") == []


def test_keys_that_stay_are_the_same_objects() -> None:
    before = keys(public_jwk("RS256", "k1"), public_jwk("ES256", "k2"))
    after = before.updated(keys(public_jwk("ES256", "k2"), public_jwk("RS256", "k3")))
    (kept,) = after.find("k2", "ES256")
    assert kept in before
    assert not any(key in after for key in before.find("k1", "RS256"))
