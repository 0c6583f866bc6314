"""JSON that every reader takes as one line."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.gateway_app import PREFIX, bearer, recipients, serve

from gateway.encoding import begin_of, json_bytes, json_line
from gateway.telemetry.audit_record import AuditRecord
from gateway.web.error_response import ErrorAnswer

BREAKS = "\x85\u2028\u2029"
COMMANDS = "\x1b\x7f\x80\x9b\x9f\u202a\u202e\u2066\u2069"
"""Of terminals, and what shows text in another order."""
TEXTS = st.text(
    st.one_of(st.sampled_from(f'{BREAKS}{COMMANDS}"\\\r\n\x0b\x0c\x1c'), st.characters(codec="utf-8"))
)
VALUES = st.recursive(
    TEXTS | st.integers(-(2**63), 2**63) | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(VALUES)
def test_a_value_is_one_line_for_python_and_the_same_when_it_is_read(value: Any) -> None:
    text = json_bytes(value)
    assert json.loads(text) == value
    assert len(text.decode().splitlines()) <= 1
    assert not set(text.decode()) & set(COMMANDS)
    assert json_line(value) == text + b"\n"


@given(TEXTS, st.integers(0, 40))
def test_the_begin_of_a_text_is_the_longest_one_of_its_bytes(text: str, most_bytes: int) -> None:
    fitting = [n for n in range(len(text) + 1) if len(json_bytes(text[:n])) - 2 <= most_bytes]
    assert begin_of(text, most_bytes) == text[: fitting[-1]]


@pytest.mark.parametrize(
    "path", ["/shares", "/shares/s", "/shares/s/schemas", "/shares/s/all-tables", "/openapi.json"]
)
async def test_bodies_have_no_line_break_of_python(path: str) -> None:
    shares = [
        {
            "name": "s",
            "comment": f"a{BREAKS}b",
            "displayName": f"a{BREAKS}b",
            "properties": {"key": f"a{BREAKS}b"},
            "schemas": [{"name": "d", "tables": [{"name": "t", "location": "/t"}]}],
        }
    ]
    client, _ = await serve(f"shares: {json.dumps(shares)}\n" + recipients(alice="s"))
    response = await client.get(PREFIX + path, headers=bearer("alice"))
    text = await response.text()
    await client.close()
    assert response.status == 200
    assert len(text.splitlines()) == 1


def test_errors_and_audit_records_have_no_line_break_of_python() -> None:
    answer = ErrorAnswer(400, "INVALID_PARAMETER_VALUE", f"a{BREAKS}b", "request")
    record = AuditRecord(
        at_ms=1,
        action="a",
        recipient=f"a{BREAKS}b",
        user_agent=BREAKS,
        status=200,
        details={"x": BREAKS},
    )
    for body in (answer.response().body, answer.oauth_response().body, record.line()):
        assert len(bytes(body).decode().splitlines()) == 1
