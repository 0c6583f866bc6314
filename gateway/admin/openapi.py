"""The OpenAPI document of the admin API. A test compares it with the routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.access.recipient_store import MAX_LIFE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LIST_LENGTH = 1000

Body = dict[str, Any]


def _object(required: list[str], **properties: Body) -> Body:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _list_of(items: Body, **limits: int) -> Body:
    return {"type": "array", "items": items, **limits}


_NAME: Body = {"type": "string", "minLength": 1, "maxLength": 255}
_TIME: Body = {"type": "integer", "description": "milliseconds since the epoch"}
_LIFE: Body = {"type": "integer", "minimum": 1, "maximum": MAX_LIFE_SECONDS}
_REFUSAL: Body = {"type": ["string", "null"], "description": "reason why the configuration was refused"}
_NAMES = _list_of(_NAME, maxItems=MAX_LIST_LENGTH)
_NETWORKS = _list_of(
    {"type": "string", "description": "an address or a network, IPv4 or IPv6"}, maxItems=MAX_LIST_LENGTH
)


def _schema(name: str) -> Body:
    return {"$ref": f"#/components/schemas/{name}"}


def _answer(description: str, schema: Body | None = None) -> Body:
    return {"description": description} | (
        {"content": {"application/json": {"schema": schema}}} if schema else {}
    )


_REFUSALS: Mapping[str, str] = {
    "400": "A value that is not accepted",
    "401": "The admin token is missing or wrong",
    "404": "No such recipient, or no database is configured",
    "409": "The name is taken",
    "413": "A body over 64 KiB",
    "503": "The database cannot be written",
}


def _operation(
    summary: str, status: str, answer: Body, *, body: str | None = None, refusals: str = "400 401 404 413 503"
) -> Body:
    answers = {status: answer}
    answers |= {code: _answer(_REFUSALS[code], _schema("Error")) for code in refusals.split()}
    operation: Body = {"summary": summary, "responses": answers}
    if body is not None:
        content = {"application/json": {"schema": _schema(body)}}
        operation["requestBody"] = {"required": body != "Rotation", "content": content}
    return operation


def _named(name: str) -> Body:
    return {"name": name, "in": "path", "required": True, "schema": _NAME}


_ALLOW_ABSENT: Body = {
    "name": "allowAbsent",
    "in": "query",
    "description": "the share may come into the configuration later",
    "schema": {"type": "boolean"},
}
_RECIPIENT = _answer("The recipient", _schema("Recipient"))

DOCUMENT: Mapping[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "Delta Sharing gateway, administration",
        "version": "1",
        "description": "Recipients at run time. Changes reach running servers within a second.",
    },
    "security": [{"admin": []}],
    "paths": {
        "/healthz": {
            "get": _operation("Is it alive", "200", _answer("It is"), refusals="") | {"security": []}
        },
        "/openapi.json": {"get": _operation("This document", "200", _answer("It"), refusals="401")},
        "/metrics": {"get": _operation("Metrics for Prometheus", "200", _answer("Text"), refusals="401")},
        "/reload": {
            "post": _operation(
                "Read the configuration again",
                "200",
                _answer("Whether every process took it; else what refused it, and why", _schema("Reloaded")),
                refusals="401",
            )
        },
        "/recipients": {
            "get": _operation(
                "All recipients", "200", _answer("They", _schema("Recipients")), refusals="401 404 503"
            ),
            "post": _operation(
                "Add a recipient",
                "201",
                _answer("Its profile, shown once", _schema("Issued")),
                body="Addition",
                refusals="400 401 404 409 413 503",
            ),
        },
        "/recipients/{name}": {
            "parameters": [_named("name")],
            "get": _operation(
                "One recipient, with its history", "200", _answer("It", _schema("RecipientHistory"))
            ),
            "delete": _operation(
                "Delete a recipient with its tokens and grants",
                "200",
                _answer("What it was", _schema("Recipient")),
            ),
        },
        "/purge": {
            "post": _operation(
                "Delete expired tokens and old history",
                "200",
                _answer("How much was deleted", _schema("Purged")),
                body="Purge",
            ),
        },
        "/recipients/{name}/rotate": {
            "parameters": [_named("name")],
            "post": _operation(
                "Give a new token",
                "200",
                _answer("Its profile, shown once", _schema("Issued")),
                body="Rotation",
            ),
        },
        "/recipients/{name}/revoke": {
            "parameters": [_named("name")],
            "post": _operation("End all tokens at once", "200", _RECIPIENT),
        },
        "/recipients/{name}/networks": {
            "parameters": [_named("name")],
            "put": _operation("Replace the networks", "200", _RECIPIENT, body="Networks"),
        },
        "/recipients/{name}/shares/{share}": {
            "parameters": [_named("name"), _named("share")],
            "put": _operation("Grant a share", "200", _RECIPIENT) | {"parameters": [_ALLOW_ABSENT]},
            "delete": _operation("Take a share back", "200", _RECIPIENT),
        },
    },
    "components": {
        "securitySchemes": {"admin": {"type": "http", "scheme": "bearer"}},
        "schemas": {
            "Error": _object(
                ["errorCode", "message"], errorCode={"type": "string"}, message={"type": "string"}
            ),
            "Reloaded": _object(
                ["reloaded", "refused", "workers"],
                reloaded={"type": "boolean"},
                refused=_REFUSAL,
                workers=_list_of(_schema("WorkerReload")),
            ),
            "WorkerReload": _object(
                ["worker", "processId", "reloaded", "refused"],
                worker={"type": "integer"},
                processId={"type": ["integer", "null"]},
                reloaded={"type": "boolean"},
                refused=_REFUSAL,
            ),
            "Addition": _object(
                ["name"],
                name=_NAME,
                comment={"type": "string"},
                shares=_NAMES,
                networks=_NETWORKS,
                expiresInSeconds=_LIFE,
                allowAbsent={
                    "type": "boolean",
                    "description": "shares may come into the configuration later",
                },
            ),
            "Purge": _object(
                [],
                tokensExpiredForSeconds=_LIFE | {"minimum": 0},
                historyOlderThanSeconds=_LIFE | {"minimum": 0},
            ),
            "Purged": _object(["tokens", "changes"], tokens={"type": "integer"}, changes={"type": "integer"}),
            "Rotation": _object([], oldExpiresInSeconds=_LIFE | {"minimum": 0}, expiresInSeconds=_LIFE),
            "Networks": _object(["networks"], networks=_NETWORKS),
            "Token": _object(
                ["createdMs", "expiresMs"], createdMs=_TIME, expiresMs={"type": ["integer", "null"]}
            ),
            "Recipient": _object(
                ["name", "comment", "createdMs", "tokens", "shares", "networks"],
                name=_NAME,
                comment={"type": "string"},
                createdMs=_TIME,
                tokens=_list_of(_schema("Token")),
                shares=_NAMES,
                networks=_NETWORKS,
            ),
            "Recipients": _object(["recipients"], recipients=_list_of(_schema("Recipient"))),
            "Change": _object(
                ["atMs", "actor", "action", "detail"],
                atMs=_TIME,
                actor={"type": "string"},
                action={"type": "string"},
                detail={"type": "object"},
            ),
            "RecipientHistory": {
                "type": "object",
                "required": ["name", "history"],
                "properties": {"name": _NAME, "history": _list_of(_schema("Change"))},
            },
            "Profile": _object(
                ["shareCredentialsVersion", "endpoint", "bearerToken"],
                shareCredentialsVersion={"type": "integer"},
                endpoint={"type": "string"},
                bearerToken={"type": "string"},
                expirationTime={"type": "string"},
            ),
            "Issued": _object(["recipient", "profile"], recipient=_NAME, profile=_schema("Profile")),
        },
    },
}
