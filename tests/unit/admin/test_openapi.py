"""The OpenAPI document describes the routes and the types of the admin API."""

import re

from gateway.admin.app import OPERATIONS, route
from gateway.admin.openapi import document

DOCUMENT = document(OPERATIONS)
SCHEMAS = DOCUMENT["components"]["schemas"]


def test_the_document_and_the_routes_are_the_same():
    made = [route(operation) for operation in OPERATIONS]
    routes = {(one.method.lower(), one.path.replace(":[^/]+}", "}")) for one in made}
    described = {
        (method, path)
        for path, item in DOCUMENT["paths"].items()
        for method in item
        if method != "parameters"
    }
    assert described == routes


def test_every_schema_that_is_named_is_there():
    named = set(re.findall(r"#/components/schemas/(\w+)", str(DOCUMENT)))
    assert named == set(SCHEMAS)


def test_a_request_has_the_fields_and_limits_of_its_type():
    addition = SCHEMAS["Addition"]
    assert addition["required"] == ["name"]
    assert addition["additionalProperties"] is False
    assert addition["properties"]["name"] == {"type": "string", "minLength": 1, "maxLength": 255}
    assert addition["properties"]["shares"]["maxItems"] == 1000
    life, absent = addition["properties"]["expiresInSeconds"]["anyOf"]
    assert (life["minimum"], life["maximum"], absent) == (1, 10 * 365 * 86_400, {"type": "null"})


def test_a_body_is_required_where_a_field_of_it_is():
    paths = DOCUMENT["paths"]
    assert paths["/recipients"]["post"]["requestBody"]["required"]
    assert not paths["/recipients/{name}/rotate"]["post"]["requestBody"]["required"]
    assert "requestBody" not in paths["/recipients/{name}/revoke"]["post"]


def test_parameters_of_path_and_query_are_described():
    item = DOCUMENT["paths"]["/recipients/{name}/shares/{share}"]
    assert [(one["name"], one["in"], one["required"]) for one in item["parameters"]] == [
        ("name", "path", True),
        ("share", "path", True),
    ]
    (parameter,) = item["put"]["parameters"]
    assert (parameter["name"], parameter["in"], parameter["required"]) == ("allowAbsent", "query", False)
    assert parameter["schema"]["type"] == "boolean"


def test_each_operation_names_its_errors():
    responses = {
        f"{method} {path}": " ".join(operation["responses"])
        for path, item in DOCUMENT["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    }
    assert responses["get /healthz"] == "200"
    assert responses["post /reload"] == "200 400 401 413"
    assert responses["post /recipients"] == "201 400 401 404 409 413 503"
    assert responses["delete /recipients/{name}"] == "200 400 401 404 412 413 503"
