"""The application of the console: the table of its pages."""

from __future__ import annotations

from aiohttp import web

from gateway.admin.administration import ADMINISTRATION
from gateway.admin.middlewares import answer_database_errors, end_with_client
from gateway.admin.operation import any_name
from gateway.console import operation_pages, provider_pages, recipient_pages, share_pages, sign_in
from gateway.console.protection import PREFIX, add_headers, answer_conflicts, answer_errors, require_session
from gateway.console.rendering import redirect
from gateway.console.site import SITE, Site

RECIPIENT = any_name("/recipients/{name}")


def routes() -> list[web.RouteDef]:
    """Return the table of pages and forms, below the prefix of the console."""
    return [
        web.get("", lead_on),
        web.get("/", operation_pages.overview),
        web.get("/style.css", operation_pages.style),
        web.get("/icon.svg", operation_pages.picture),
        web.get("/sign-in", sign_in.form),
        web.post("/sign-in", sign_in.sign_in),
        web.get("/sign-in/provider", provider_pages.start, allow_head=False),
        web.get("/sign-in/callback", provider_pages.callback, allow_head=False),
        web.post("/sign-out", sign_in.sign_out),
        web.get("/shares", share_pages.shares),
        web.get(any_name("/shares/{share}"), share_pages.share),
        web.get(any_name("/shares/{share}/{schema}/{table}"), share_pages.table),
        web.get("/recipients", recipient_pages.recipients),
        web.post("/recipients", recipient_pages.add),
        web.get(RECIPIENT, recipient_pages.recipient),
        web.post(f"{RECIPIENT}/rotate", recipient_pages.rotate),
        web.post(f"{RECIPIENT}{any_name('/clients/{client}')}/rotate", recipient_pages.rotate_client),
        web.post(f"{RECIPIENT}/link", recipient_pages.link),
        web.post(f"{RECIPIENT}/revoke", recipient_pages.revoke),
        web.post(f"{RECIPIENT}/grant", recipient_pages.grant),
        web.post(f"{RECIPIENT}/take-back", recipient_pages.take_back),
        web.post(f"{RECIPIENT}/properties", recipient_pages.set_property),
        web.post(f"{RECIPIENT}/properties/remove", recipient_pages.remove_property),
        web.post(f"{RECIPIENT}/networks", recipient_pages.set_networks),
        web.post(f"{RECIPIENT}/delete", recipient_pages.delete),
        web.get("/activity", operation_pages.activity),
        web.get("/storages", operation_pages.storages),
        web.get("/configuration", operation_pages.configuration),
        web.post("/configuration/reload", operation_pages.reload),
    ]


async def lead_on(_request: web.Request) -> web.Response:
    """Lead to the first page, from the address without a slash and from the root of the listener."""
    return redirect(f"{PREFIX}/")


def add_console(admin: web.Application, site: Site) -> None:
    """Add the console to the application of the admin listener."""
    middlewares = [
        add_headers,
        answer_errors,
        end_with_client,
        require_session,
        answer_database_errors,
        answer_conflicts,
    ]
    console = web.Application(middlewares=middlewares)
    console[SITE] = site
    console[ADMINISTRATION] = site.administration
    console.add_routes(routes())
    admin.add_subapp(PREFIX, console)
    admin.router.add_get("/", lead_on)
