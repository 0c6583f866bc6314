"""The application of the admin listener: the table of its operations.

In: JSON requests with the admin's bearer token. Out: recipients without their tokens, and for a new token
its profile, once. `/metrics` is also open to the metrics token.
"""

from __future__ import annotations

from aiohttp import web

from gateway.admin import handlers, share_handlers
from gateway.admin.administration import ADMINISTRATION, Administration
from gateway.admin.codec import encode
from gateway.admin.middlewares import (
    answer_database_errors,
    answer_errors,
    authenticate,
    end_with_client,
    name_server,
)
from gateway.admin.openapi import DOCUMENT, document
from gateway.admin.operation import MAX_BODY_BYTES, Operation, any_name

OPERATIONS = (
    Operation("GET", "/healthz", handlers.alive, errors=()),
    Operation("GET", "/openapi.json", handlers.openapi, errors=(401,)),
    Operation("GET", "/metrics", handlers.metrics, errors=(401,)),
    Operation("POST", "/reload", handlers.reload, errors=(400, 401)),
    Operation("GET", "/recipients", handlers.list_recipients, errors=(401, 404, 503)),
    Operation("POST", "/recipients", handlers.add_recipient, 201, errors=(400, 401, 404, 409, 503)),
    Operation("GET", "/recipients/{name}", handlers.show_recipient),
    Operation("DELETE", "/recipients/{name}", handlers.delete_recipient),
    Operation("POST", "/purge", handlers.purge),
    Operation("POST", "/recipients/{name}/rotate", handlers.rotate_token),
    Operation("POST", "/recipients/{name}/revoke", handlers.revoke_tokens),
    Operation("POST", "/recipients/{name}/activation-links", handlers.add_activation_link, 201),
    Operation("GET", "/recipients/{name}/federation-policies", handlers.list_policies),
    Operation(
        "POST",
        "/recipients/{name}/federation-policies",
        handlers.add_policy,
        201,
        errors=(400, 401, 404, 409, 503),
    ),
    Operation("GET", "/recipients/{name}/federation-policies/{policy}", handlers.show_policy),
    Operation("DELETE", "/recipients/{name}/federation-policies/{policy}", handlers.remove_policy),
    Operation("GET", "/recipients/{name}/clients", handlers.list_clients),
    Operation("POST", "/recipients/{name}/clients", handlers.add_client, 201),
    Operation("GET", "/recipients/{name}/clients/{client}", handlers.show_client),
    Operation("DELETE", "/recipients/{name}/clients/{client}", handlers.remove_client),
    Operation("POST", "/recipients/{name}/clients/{client}/rotate", handlers.rotate_client),
    Operation("PUT", "/recipients/{name}/bearer-tokens", handlers.set_bearer_tokens),
    Operation("PUT", "/recipients/{name}/networks", handlers.allow_networks),
    Operation("PUT", "/recipients/{name}/shares/{share}", handlers.grant_share),
    Operation("DELETE", "/recipients/{name}/shares/{share}", handlers.revoke_share),
    Operation("GET", "/shares", share_handlers.list_shares, errors=(401, 503)),
    Operation("POST", "/shares", share_handlers.add_share, 201, errors=(400, 401, 404, 409, 503)),
    Operation("GET", "/shares/{share}", share_handlers.show_share),
    Operation("PATCH", "/shares/{share}", share_handlers.update_share, errors=(400, 401, 404, 409, 503)),
    Operation("DELETE", "/shares/{share}", share_handlers.remove_share, errors=(400, 401, 404, 409, 503)),
    Operation("GET", "/shares/{share}/permissions", share_handlers.show_permissions),
    Operation("PATCH", "/shares/{share}/permissions", share_handlers.update_permissions),
    Operation("PUT", "/recipients/{name}/grants", handlers.grant_part),
    Operation("POST", "/recipients/{name}/grants/revoke", handlers.revoke_part),
    Operation("PUT", "/recipients/{name}/properties", handlers.set_properties),
)


def create_admin_app(administration: Administration) -> web.Application:
    """Make the application of the admin listener."""
    middlewares = [answer_errors, end_with_client, answer_database_errors, authenticate]
    app = web.Application(middlewares=middlewares, client_max_size=MAX_BODY_BYTES)
    app[ADMINISTRATION] = administration
    app.on_response_prepare.append(name_server)
    app[DOCUMENT] = encode(document(OPERATIONS))
    app.add_routes([route(operation) for operation in OPERATIONS])
    return app


def route(operation: Operation) -> web.RouteDef:
    """Return the route of an operation; the route of a GET also answers HEAD."""
    if operation.method == "GET":
        return web.get(any_name(operation.path), operation.respond)
    return web.route(operation.method, any_name(operation.path), operation.respond)
