"""Drawn headers, claims and texts of tokens against an independent reading of the rules, over HTTP."""

import asyncio
import json
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from support.gateway_app import PREFIX, Clock, serve
from support.identity_provider import private_key, public_jwk

NOW = 1_700_000_000
ISSUER, AUDIENCES, DAY_SECONDS, LEEWAY = "https://idp.example.com/", ("a", "b"), 86_400, 60
EXAMPLES = 150
KEYS: Mapping[str, str] = {"r": "RS256", "e": "ES256"}
"""The algorithm of each published key; the RSA key may sign by PS256, too."""


def part(content: Any) -> str:
    """A part of a token; text is taken as it is."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return urlsafe_b64encode(raw).decode().rstrip("=")


def pss() -> padding.PSS:
    return padding.PSS(padding.MGF1(SHA256()), SHA256.digest_size)


def signature(signer: str, text: bytes) -> bytes:
    """A signature by a key of the issuer, of an attacker, by a public key as a secret, or none."""
    if signer in {"RS256", "PS256", "attacker"}:
        key = private_key("RS256", "a" if signer == "attacker" else "r")
        return bytes(key.sign(text, pss() if signer == "PS256" else padding.PKCS1v15(), SHA256()))
    if signer == "ES256":
        numbers = decode_dss_signature(private_key("ES256", "e").sign(text, ec.ECDSA(SHA256())))
        return b"".join(number.to_bytes(32, "big") for number in numbers)
    if signer == "HS256":
        public = private_key("RS256", "r").public_key()
        secret = HMAC(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), SHA256())
        secret.update(text)
        return secret.finalize()
    return b""


SIGNERS = ("RS256", "PS256", "ES256", "attacker", "HS256", "none")
ODD = st.sampled_from([None, True, 0, 7, -1, "", "a", [], ["a"], {}, {"a": 1}, [None], "alice\u0000", 1e300])
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "alg": st.sampled_from([*SIGNERS, "RS512", "rs256", "EdDSA"]) | ODD,
        "kid": st.sampled_from(["r", "e", "x", None]) | ODD,
        "typ": st.sampled_from(["JWT", "at+jwt", "application/at+jwt", "logout+jwt"]) | ODD,
        "crit": ODD,
        "b64": st.booleans(),
        "jku": st.just("https://attacker.example.com/keys"),
        "jwk": st.just(public_jwk("RS256", "a")),
        "x5u": st.just("http://169.254.169.254/"),
        "x5c": st.just(["AAAA"]),
    },
)
TIMES = st.sampled_from(
    [
        *(NOW + seconds for seconds in (-61, -60, -59, -1, 0, 1, 59, 60, 61, 3600, 86_400, 86_401)),
        *(NOW + 0.5, float("inf"), float("nan"), 10**30, str(NOW)),
    ]
)
CLAIMS = st.fixed_dictionaries(
    {},
    optional={
        "iss": st.sampled_from([ISSUER, ISSUER[:-1], ISSUER.upper(), "https://attacker.example.com"]) | ODD,
        "sub": st.sampled_from(["alice", "bob", "ALICE", "alice ", ["alice"]]) | ODD,
        "aud": st.sampled_from(["a", "b", "c", ["c", "b"], ["c"], "a b", {"a": 1}]) | ODD,
        "exp": TIMES | ODD,
        "nbf": TIMES | ODD,
        "iat": TIMES | ODD,
        "groups": st.sampled_from(["g", ["f", "g"], ["f"], {"g": 1}, "f g"]) | ODD,
        "scp": st.sampled_from(["read", "write read", ["read"], "reader"]) | ODD,
        "_claim_names": st.sampled_from([{"groups": "src1"}, "groups"]) | ODD,
    },
)
DROPPED = st.sets(st.sampled_from(["alg", "kid", "typ", "iss", "sub", "aud", "exp"]), max_size=1)
TEXT = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=12)


@st.composite
def tokens(draw: st.DrawFn) -> str:
    """A token, mostly with few changes from one that is accepted."""
    signer = draw(st.sampled_from((*SIGNERS[:3] * 3, *SIGNERS)))
    base = {"alg": signer if signer != "attacker" else "RS256", "kid": "e" if signer == "ES256" else "r"}
    header = base | draw(st.just({}) | HEADERS)
    claims = {"iss": ISSUER, "sub": "alice", "aud": "a", "exp": NOW + 3600, "iat": NOW}
    claims |= draw(st.just({}) | CLAIMS)
    dropped = draw(st.just(set()) | DROPPED)
    header = {name: value for name, value in header.items() if name not in dropped}
    claims = {name: value for name, value in claims.items() if name not in dropped}
    signed = f"{part(header)}.{part(claims)}"
    token = f"{signed}.{part(signature(signer, signed.encode()))}"
    if draw(st.integers(0, 5)):
        return token
    # A change of the text, at any place.
    place = draw(st.integers(0, len(token)))
    return token[:place] + draw(TEXT) + token[place + draw(st.integers(0, 2)) :]


def is_accepted(token: str) -> bool:
    """Return whether a token satisfies every rule; written after the rules alone."""
    parts = token.split(".")
    if len(parts) != 3:
        return False
    try:
        header, claims = (json.loads(urlsafe_b64decode(one + "=" * (-len(one) % 4))) for one in parts[:2])
        mark = urlsafe_b64decode(parts[2] + "=" * (-len(parts[2]) % 4))
    except (ValueError, RecursionError):
        return False
    if not isinstance(header, dict) or not isinstance(claims, dict):
        return False
    return (
        header_is_accepted(header)
        and is_signed(header, ".".join(parts[:2]).encode(), mark)
        and claims.get("iss") == ISSUER
        and is_in_time(claims)
        and len(recipients(claims)) == 1
    )


def header_is_accepted(header: dict[str, Any]) -> bool:
    types = ("jwt", "at+jwt", "application/at+jwt", "application/jwt")
    typ = header.get("typ", "JWT")
    # A payload that is not encoded (RFC 7797) would be elsewhere.
    is_whole = "crit" not in header and header.get("b64") is not False
    return is_whole and isinstance(typ, str) and typ.lower() in types


def is_signed(header: dict[str, Any], text: bytes, mark: bytes) -> bool:
    algorithm = header.get("alg")
    kind = {"RS256": "r", "PS256": "r", "ES256": "e"}.get(algorithm) if isinstance(algorithm, str) else None
    # Without a key id each key of the kind is tried: there is one.
    if kind is None or header.get("kid", kind) != kind:
        return False
    public = private_key(KEYS[kind], kind).public_key()
    try:
        if kind == "e":
            if len(mark) != 64:
                return False
            numbers = (int.from_bytes(mark[:32], "big"), int.from_bytes(mark[32:], "big"))
            public.verify(encode_dss_signature(*numbers), text, ec.ECDSA(SHA256()))
        else:
            public.verify(mark, text, pss() if algorithm == "PS256" else padding.PKCS1v15(), SHA256())
    except InvalidSignature:
        return False
    return True


def is_in_time(claims: dict[str, Any]) -> bool:
    for name in ("exp", "nbf", "iat"):
        value = claims.get(name, 0)
        if type(value) not in (int, float) or not math.isfinite(value):
            return False
    return (
        "exp" in claims
        and claims["exp"] + LEEWAY > NOW
        and max(claims.get("nbf", 0), claims.get("iat", 0)) <= NOW + LEEWAY
        and claims["exp"] - claims.get("iat", NOW) <= DAY_SECONDS
    )


def texts(value: Any) -> set[str]:
    return {one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)}


def recipients(claims: dict[str, Any]) -> set[str]:
    if not texts(claims.get("aud")) & {*AUDIENCES}:
        return set()
    found = {"alice"} if claims.get("sub") == "alice" else set()
    scopes = claims.get("scp")
    words = set(scopes.split(" ")) if isinstance(scopes, str) else texts(scopes)
    if "g" in texts(claims.get("groups")) and "read" in words:
        found.add("grouped")
    return found


@dataclass(frozen=True)
class Gateway:
    """A gateway on a socket, and the loop that runs it."""

    runner: asyncio.Runner
    client: TestClient[Any, Any]

    def answer(self, token: str) -> tuple[int, Mapping[str, str], bytes]:
        """The status, the headers without the date, and the body of a request."""
        return self.runner.run(self._answer(token))

    async def _answer(self, token: str) -> tuple[int, Mapping[str, str], bytes]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.client.get(f"{PREFIX}/shares", headers=headers) as answer:
            found = {name: text for name, text in answer.headers.items() if name != "Date"}
            return answer.status, found, await answer.read()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    keys: Path = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(json.dumps({"keys": [public_jwk(algorithm, name) for name, algorithm in KEYS.items()]}))
    policy = {"issuer": ISSUER, "audiences": list(AUDIENCES)}
    grouped = policy | {"subjectClaim": "groups", "subject": "g", "claims": {"scp": "read"}}
    section = {
        "oidc": {"issuers": [{"issuer": ISSUER, "jwksFile": str(keys)}]},
        "recipients": [
            {"name": "alice", "shares": ["s"], "oidc": [policy | {"subject": "alice"}]},
            {"name": "grouped", "shares": ["s"], "oidc": [grouped]},
        ],
    }
    text = f"shares: [{{name: s}}]\ngateway: {json.dumps(section)}\n"
    with asyncio.Runner() as runner:
        client, _ = runner.run(serve(text, clock=Clock(NOW * 1000)))
        yield Gateway(runner, client)
        runner.run(client.close())


@settings(max_examples=EXAMPLES)
@given(tokens())
def test_a_token_is_accepted_exactly_if_it_satisfies_every_rule(gateway: Gateway, token: str) -> None:
    refusal = gateway.answer("unknown")
    found = gateway.answer(token)
    assert found[0] == (200 if is_accepted(token) else 401), token
    # Every failure has one answer.
    assert found[0] == 200 or found == refusal
    # Also of a token that is kept.
    assert gateway.answer(token) == found


@given(st.lists(TEXT | st.sampled_from([part({"alg": "RS256"}), part([]), part(b"\xff"), part(b"[" * 3000)])))
def test_any_text_is_refused_by_the_same_answer(gateway: Gateway, parts: list[str]) -> None:
    token = ".".join(parts)[:7000]
    assert gateway.answer(token or "-") == gateway.answer("unknown")


def test_tokens_that_are_drawn_are_often_accepted() -> None:
    """Otherwise the rules behind the signature would not be reached."""
    seen: list[bool] = []

    @settings(max_examples=100, database=None, derandomize=True)
    @given(tokens())
    def draw(token: str) -> None:
        seen.append(is_accepted(token))

    draw()
    assert 10 <= sum(seen) < len(seen) - 10
