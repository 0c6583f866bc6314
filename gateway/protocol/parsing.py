"""Parsing of query parameters, JSON fields and timestamps.

Raises InvalidParameter for a value outside of its range and MalformedRequest for a value of the wrong type;
both name the parameter and the accepted values.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from gateway.errors import InvalidParameter, MalformedRequest

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
MAX_JSON_DEPTH = 100
_OFFSET = r"(Z|z|[ +-]\d{2}(?::?\d{2})?)?"
_TIMESTAMPS = (
    re.compile(
        r"(\d{4})-(\d{1,2})-(\d{1,2})"
        rf"(?:[Tt ](\d{{1,2}}):(\d{{2}})(?::(\d{{2}})(?:[.,](\d{{1,9}}))?)?{_OFFSET})?",
        re.ASCII,
    ),
    re.compile(
        r"(\d{4})(\d{2})(\d{2})" rf"(?:[Tt](\d{{2}})(\d{{2}})(?:(\d{{2}})(?:[.,](\d{{1,9}}))?)?{_OFFSET})?",
        re.ASCII,
    ),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,40})?", re.ASCII)
_LARGEST_DIGITS = 20
_LARGEST_OFFSET = timedelta(hours=18)
_MINUTES = 60


def parse_timestamp(text: str, *, round_up: bool = False, is_query: bool = False) -> int:
    """Read a timestamp as milliseconds since the epoch, rounded down or up.

    Accepts ISO-8601 (`2022-01-01T00:00:00Z`, with fraction or offset; seconds or the time may be absent;
    the basic form `20220101T000000Z`) and the older `yyyy-[m]m-[d]d hh:mm:ss[.f...]`. Without an offset
    each is UTC. In a query string a blank before an offset is a `+` that was not encoded. Raises ValueError.
    """
    match = next((matching for form in _TIMESTAMPS if (matching := form.fullmatch(text.strip()))), None)
    if match is None:
        raise ValueError(text)
    *numbers, fraction, offset = match.groups()
    if offset and offset[0] == " " and not is_query:
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _offset(offset)
    nanoseconds = int((fraction or "").ljust(9, "0"))
    milliseconds, finer = divmod(nanoseconds, 1_000_000)
    return (moment - _EPOCH) // timedelta(milliseconds=1) + milliseconds + (round_up and finer > 0)


def timestamp_parameter(parameters: Mapping[str, str], name: str, *, round_up: bool = False) -> int | None:
    """Read a query parameter that holds a timestamp."""
    return timestamp_field(parameters.get(name), name, round_up=round_up, is_query=True)


def _offset(text: str | None) -> timedelta:
    if text is None or text in "Zz":
        return timedelta()
    hours, minutes = int(text[1:3]), int(text[3:].removeprefix(":") or 0)
    offset = timedelta(hours=hours, minutes=minutes)
    if minutes >= _MINUTES or offset > _LARGEST_OFFSET:
        raise ValueError(text)
    return -offset if text[0] == "-" else offset


def timestamp_field(
    text: str | None, name: str, *, round_up: bool = False, is_query: bool = False
) -> int | None:
    """Parse an optional timestamp. Raises InvalidParameter."""
    if text is None:
        return None
    try:
        return parse_timestamp(text, round_up=round_up, is_query=is_query)
    except (ValueError, OverflowError):
        raise InvalidParameter(
            f"{name} is a time in ISO 8601, such as 2022-01-01T00:00:00Z or 2022-01-01T01:00:00+01:00"
        ) from None


def integer_parameter(
    parameters: Mapping[str, str], name: str, *, minimum: int = 0, maximum: int = MAX_INT64
) -> int | None:
    """Parse an optional integer of a query parameter. Raises InvalidParameter."""
    text = parameters.get(name)
    if text is None:
        return None
    value = int(text) if _INTEGER.fullmatch(text.strip()) else None
    return _within(value, name, minimum, maximum)


def _within(value: int | None, name: str, minimum: int, maximum: int) -> int:
    if value is None or not minimum <= value <= maximum:
        raise InvalidParameter(f"{name} is an integer of {minimum} or more, up to {maximum}")
    return value


def boolean_parameter(parameters: Mapping[str, str], name: str) -> bool:
    """Parse a flag of a query parameter; any text but `true` is false."""
    return parameters.get(name, "").strip().lower() == "true"


def json_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; an empty body is an empty object. Raises MalformedRequest."""
    # Clients of .NET and Excel begin a text with it; RFC 8259 allows to ignore it.
    if not (body := body.removeprefix(BOM_UTF8)).strip():
        return {}
    if _is_too_deep(body):
        raise MalformedRequest(f"the body is nested deeper than {MAX_JSON_DEPTH}")
    try:
        value = _JSON.decode(body)
    except msgspec.ValidationError:
        raise MalformedRequest("the body has an integer of more digits than can be read") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise MalformedRequest("the body is not JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise MalformedRequest("the body is not a JSON object")
    return value


def _is_too_deep(body: bytes) -> bool:
    """Return whether brackets outside of strings are nested deeper than `MAX_JSON_DEPTH`."""
    if len(body) <= MAX_JSON_DEPTH or body.count(b"{") + body.count(b"[") <= MAX_JSON_DEPTH:
        return False
    # One pass each: a pattern that backtracks over quotes and escapes would take an hour for a hostile body.
    unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
    depth = 0
    for bracket in _STRING.sub(b"", unescaped).translate(None, _NO_BRACKETS):
        if bracket in b"{[":
            depth += 1
            if depth > MAX_JSON_DEPTH:
                return True
        else:
            depth -= 1
    return False


_STRING = re.compile(rb'"[^"]*"?')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def integer_field(fields: Mapping[str, Any], name: str, *, minimum: int = 0) -> int | None:
    """Parse an optional integer of a JSON object."""
    value = fields.get(name)
    if value is None:
        return None
    number = _whole(value)
    if number is None:
        raise MalformedRequest(f"{name} is an integer")
    return _within(number, name, minimum, MAX_INT64)


def _whole(value: Any) -> int | None:
    """Return the whole number of a JSON value, also of `1e2`, `100.0` and `"5"`, as in the JSON of protobuf.

    Numbers beyond 64 bits are `2**63` or its negative.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = _exact(value)
    if isinstance(value, Decimal):
        if value.is_finite() and value and value.adjusted() >= _LARGEST_DIGITS:
            return -(MAX_INT64 + 1) if value.is_signed() else MAX_INT64 + 1
        return int(value) if value.is_finite() and value == value.to_integral_value() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _exact(text: str) -> Decimal:
    """Return the exact value of a number's text; NaN for an exponent beyond the range of decimals."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("NaN")


_JSON = msgspec.json.Decoder(float_hook=_exact)
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def string_field(fields: Mapping[str, Any], name: str) -> str | None:
    """Parse an optional string of a JSON object."""
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise MalformedRequest(f"{name} is a string")
    return value


def boolean_field(fields: Mapping[str, Any], name: str) -> bool:
    """Parse a flag of a JSON object; an absent one is false."""
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise MalformedRequest(f"{name} is true or false")
    return bool(value)


def predicate_hints(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Parse an optional list of SQL predicates."""
    value = fields.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(hint, str) for hint in value):
        raise MalformedRequest(f"{name} is a list of strings")
    return tuple(value)


def json_predicate_hint(fields: Mapping[str, Any], name: str) -> str | None:
    """Parse an optional predicate in JSON: a string that holds JSON, or the JSON object itself."""
    value = fields.get(name)
    if isinstance(value, dict):
        return _ENCODER.encode(value).decode()
    return string_field(fields, name) or None
