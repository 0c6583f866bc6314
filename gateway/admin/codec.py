"""Decodes requests into their types, and encodes answers, as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from gateway.encoding import one_line
from gateway.errors import GatewayError, InvalidParameter, MalformedRequest

MAX_REASON_LENGTH = 300
"""A reason may quote a field name of the request."""

# A value of the right type beyond a limit of its type. Other reasons name the type that the value has.
_BEYOND_LIMIT = re.compile(r"Expected `\w+` (?:[<>]=|of length)")

T = TypeVar("T")


def decode_body(data: bytes, kind: type[T]) -> T:
    """Return a request's body; an empty one is that without fields. Raises GatewayError."""
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise _refusal(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise MalformedRequest("the body is not JSON in UTF-8") from None


def decode_query(parameters: Mapping[str, Any], kind: type[T]) -> T:
    """Return the parameters of a request's query string or form as their type. Raises GatewayError.

    Unknown ones are ignored unless the type forbids them.
    """
    try:
        return msgspec.convert(dict(parameters), kind, strict=False)
    except msgspec.ValidationError as error:
        raise _refusal(error) from None


def decode_form(fields: Mapping[str, Any], kind: type[T]) -> T:
    """Return the fields of a form as their type: texts stay texts, as `null` does. Raises GatewayError."""
    try:
        return msgspec.convert(dict(fields), kind)
    except msgspec.ValidationError as error:
        raise _refusal(error) from None


def encode(answer: Any) -> bytes:
    return one_line(msgspec.json.encode(answer))


def _refusal(error: msgspec.ValidationError) -> GatewayError:
    reason = str(error)[:MAX_REASON_LENGTH]
    return InvalidParameter(reason) if _BEYOND_LIMIT.match(reason) else MalformedRequest(reason)
