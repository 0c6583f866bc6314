"""Pages of recipients, and the forms that change them by the operations of the admin API."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar
from urllib.parse import quote, unquote

import msgspec
from aiohttp import web

from gateway.admin import handlers, messages
from gateway.admin.call import Call, seen_by
from gateway.admin.codec import decode_form, decode_query
from gateway.catalog.grants import Grant, grant_text
from gateway.config import RecipientEntry
from gateway.config.recipients import TokenEntry
from gateway.console.charts import plots_of
from gateway.console.forms import FORM, form_of
from gateway.console.listing import MAX_QUERY_LENGTH, PAGE_LENGTH, Listing, Wanted, listing, stream_listing
from gateway.console.protection import PREFIX
from gateway.console.rendering import redirect, respond
from gateway.console.site import SITE, Site, session_of
from gateway.database.errors import DatabaseMissing
from gateway.database.schema import recipient_key
from gateway.errors import InvalidParameter, NotFound, Unavailable
from gateway.governance.credential_store import configured_names
from gateway.governance.recipient_listing import RecipientPage
from gateway.governance.recipient_records import (
    TEXTS,
    ChangeRecord,
    ClientRecord,
    RecipientNotFound,
    RecipientRecord,
    TokenRecord,
)
from gateway.governance.recipient_store import RecipientDatabase
from gateway.protocol.profile import Profile, profile_text
from gateway.report.times import SOON_SECONDS
from gateway.telemetry.activity import FIGURES
from gateway.times import DAY_SECONDS, HOUR_SECONDS, LAST_TIME_MS, MILLISECONDS

SHOWN_QUERIES = 20
SHOWN_CHANGES = 100
PLACE_FIELDS = ("share", "schema", "table", "condition")
LIVES = {"expiresInSeconds": ("days", DAY_SECONDS), "oldExpiresInSeconds": ("old_hours", HOUR_SECONDS)}
"""The fields of forms that give a life, and their units, by the fields of requests."""
FIELDS = frozenset({"name", *TEXTS})
"""The fields of forms that have the name of the request's field."""

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class RecipientRow:
    """A recipient of the database or of the configuration file.

    `refused`: why all of its requests are; empty for no such reason.
    """

    record: RecipientRecord
    is_stored: bool = True
    is_federated: bool = False
    refused: str = ""

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def places(self) -> Sequence[str]:
        """Return the shares that are granted in whole or in part."""
        parts = (grant.share for grant in self.record.grants)
        return [*dict.fromkeys([*self.record.shares, *parts])]

    @property
    def has_credential(self) -> bool:
        """Return whether it has a token or secret at all."""
        return bool(self._credentials)

    @property
    def ends_ms(self) -> int | None:
        """Return the last end of its tokens and secrets; None if one does not end, or without any."""
        ends = [credential.expires_ms for credential in self._credentials]
        return max((end for end in ends if end is not None), default=None) if None not in ends else None

    @property
    def _credentials(self) -> Sequence[TokenRecord]:
        tokens = () if self.record.forbids_bearer_tokens else self.record.tokens
        return (*tokens, *(secret for client in self.record.clients for secret in client.secrets))


def row_of(record: RecipientRecord) -> RecipientRow:
    return RecipientRow(record, is_federated=bool(record.policies))


def stored_row(page: RecipientPage, key: str) -> RecipientRow:
    """Return the row of a stored recipient on a page, also of one that cannot be read."""
    if key in page.records:
        return row_of(page.records[key])
    unknown = RecipientRecord(key, "", 0, (), (), ())
    reason = page.unreadable.get(key, "its key is not that of its name")
    return RecipientRow(unknown, refused=f"cannot be read: {reason}")


def file_entries(site: Site, text: str) -> dict[str, RecipientEntry]:
    """Return the recipients of the configuration file with a text in their names, by their keys."""
    text = recipient_key(text)
    entries = ((recipient_key(entry.name), entry) for entry in site.config().gateway.recipients)
    return {key: entry for key, entry in entries if text in key}


async def recipients(request: web.Request) -> web.Response:
    """List the recipients, with what they have used."""
    site, wanted = request.app[SITE], Wanted.by(request, only=["ending", "refused"], sorts=["ends", *FIGURES])
    entries = await asyncio.to_thread(file_entries, site, wanted.text)
    taken, rank = configured_names(site.config()), await _rank_of(site, wanted)
    if rank.reads_ends:
        ends = ((key, file_row(entry).ends_ms) for key, entry in entries.items())
        rank.ends.update({(key, False): end_ms for key, end_ms in ends if end_ms is not None})

    def find(database: RecipientDatabase) -> Listing[RecipientRow]:
        place = {"number": wanted.page, "length": PAGE_LENGTH}
        if rank.reads_ends:
            stored = database.ending(LAST_TIME_MS)[1].first
            rank.ends.update({(recipient_key(name), True): end_ms for name, end_ms in stored})
        if wanted.only or wanted.sort:
            page = database.ranked_page(wanted.text, [*entries], rank, **place)
        else:
            page = database.page(wanted.text, sorted(entries), **place)
        rows = [
            stored_row(page, key) if is_stored else file_row(entries[key]) for key, is_stored in page.keys
        ]
        hidden = "refused: the file has a recipient of this name"
        rows = [
            replace(row, refused=hidden) if row.is_stored and row.name.lower() in taken else row
            for row in rows
        ]
        return Listing(wanted, rows, page.total, page.number)

    try:
        listed = await Call(request).with_database(find, read_only=True)
    except DatabaseMissing:
        ranked = sorted((place, key) for key in entries if (place := rank(key, False)) is not None)
        rows = [file_row(entries[key]) for _, key in ranked]
        listed = replace(listing(replace(wanted, text=""), rows, lambda row: row.name), wanted=wanted)
    uses = await site.uses([row.name for row in listed.items])
    return await respond(
        request, "recipients.html", found=listed, uses=uses, shares=await site.places(), texts=[*TEXTS]
    )


@dataclass(frozen=True, slots=True)
class RecipientRank:
    """The place of a recipient in a list; without one it is left out.

    Attributes:
        only: the requested filter.
        order: `ends` or a figure; empty for the order of names.
        before_ms: the end of tokens that end soon.
        figures: the use by recipients, of the figures that `only` and `order` need.
        ends: the last ends of credentials, by the key and whether the recipient is stored.

    """

    only: str
    order: str
    before_ms: int
    figures: Mapping[str, Mapping[str, int]]
    ends: dict[tuple[str, bool], int] = field(default_factory=dict)

    @property
    def reads_ends(self) -> bool:
        """Whether the place depends on `ends`."""
        return self.order == "ends" or self.only == "ending"

    def __call__(self, key: str, is_stored: bool) -> float | None:
        """Return the place of a recipient by its key."""
        end_ms = self.ends.get((key, is_stored), math.inf)
        if self.only == "ending" and end_ms >= self.before_ms:
            return None
        if self.only == "refused" and key not in self.figures["refusals"]:
            return None
        if self.order == "ends":
            return end_ms
        return -self.figures[self.order].get(key, 0) if self.order else 0


async def _rank_of(site: Site, wanted: Wanted) -> RecipientRank:
    """Return the rank of recipients that a request wants, without the ends of their credentials."""
    usual = {"ending": "ends", "refused": "refusals"}.get(wanted.only, "")
    order = wanted.sort or usual
    ranks = {figure: await site.ranks(figure) for figure in {order, usual} & FIGURES.keys()}
    return RecipientRank(
        wanted.only,
        order,
        site.now_ms() + SOON_SECONDS * MILLISECONDS,
        {name: {recipient_key(who): use for who, use in rank.items()} for name, rank in ranks.items()},
    )


async def recipient(request: web.Request) -> web.Response:
    """Show a recipient with its history."""
    site, name = request.app[SITE], request.match_info["name"]
    call = Call(request)
    try:
        seen, record, changes = await call.with_database(
            lambda database: (
                call.tag(database),
                database.show(name),
                database.history(name, most=SHOWN_CHANGES),
            ),
            read_only=True,
        )
    except (RecipientNotFound, DatabaseMissing):
        seen, record, changes = "", None, ()
    of_file = site.config().gateway.recipients
    entry = next((entry for entry in of_file if entry.name.lower() == name.lower()), None)
    if entry is not None:
        # A stored one of the name is refused.
        row, record = file_row(entry), None
    elif record is not None:
        row = row_of(record)
    else:
        raise NotFound("There is no recipient of this name.")
    queries, streams = await site.activity(recipient=row.name)
    chosen = _share_of(request.query)[:MAX_QUERY_LENGTH]
    return await respond(
        request,
        "recipient.html",
        row=row,
        record=record,
        seen=seen,
        places=listing(Wanted.by(request, "grant-"), [*row.record.shares, *row.record.grants], _grant_text),
        changes=listing(Wanted.by(request, "change-"), changes[::-1], _change_text),
        use=(await site.uses([row.name])).get(row.name),
        queries=queries[:SHOWN_QUERIES],
        streams=stream_listing(request, streams),
        plots=await plots_of(request, "recipient", row.name),
        shares=await site.places(),
        chosen=chosen,
        parts_of_share=await site.places(chosen) if chosen else None,
        workers=site.workers,
    )


def _grant_text(granted: str | Grant) -> str:
    return granted if isinstance(granted, str) else grant_text(granted)


def _change_text(change: ChangeRecord) -> str:
    return f"{change.action} {change.actor} {' '.join(change.shown_detail.values())}"


def _share_of(sent: Mapping[str, str]) -> str:
    """Return the share of a form. A chosen one is encoded, because pages show symbols for some characters."""
    return unquote(sent.get("chosen", "")) or sent.get("share", "").strip()


async def add(request: web.Request) -> web.Response:
    """Add a recipient, and show its profile once."""
    sent = await form_of(request)
    share = _share_of(sent)
    addition = _request(
        {name: text.strip() for name, text in sent.items()},
        messages.Addition,
        shares=[share] if share else [],
        oauthClient=sent.get("kind") == "client",
        activation=sent.get("hand_over") == "link",
    )
    issued = await handlers.add_recipient(_call(request), addition)
    if issued.activation_url is not None:
        return await _linked(request, issued.recipient, issued.activation_url)
    return await _issued(request, issued.recipient, issued.profile)


async def rotate(request: web.Request) -> web.Response:
    """Issue a new token, and show its profile once."""
    rotation = _request(await form_of(request), messages.Rotation)
    issued = await handlers.rotate_token(_call(request), rotation)
    return await _issued(request, issued.recipient, issued.profile)


async def rotate_client(request: web.Request) -> web.Response:
    """Issue a new secret of an OAuth client, and show its profile once."""
    rotation = _request(await form_of(request), messages.Rotation)
    issued = await handlers.rotate_client(_call(request), rotation)
    return await _issued(request, issued.recipient, issued.profile)


async def revoke(request: web.Request) -> web.Response:
    """End all tokens and client secrets of a recipient, whatever has changed since the page was opened."""
    await handlers.revoke_tokens(Call(request, session_of(request).actor))
    return _shown(request)


async def grant(request: web.Request) -> web.Response:
    """Grant a share, a part of one, or the files of a condition."""
    sent = await form_of(request)
    parts = [unquote(part) for part in sent.get("part", "").split("/") if part]
    sent = {**sent, "share": _share_of(sent), **dict(zip(PLACE_FIELDS[1:], parts, strict=False))}
    fields = {name: text for name in PLACE_FIELDS if (text := sent.get(name, "").strip())}
    if fields.keys() == {"share"}:
        await handlers.grant_share(_call(request, share=fields["share"]), messages.GrantOptions())
        return _shown(request)
    part = decode_form(fields, messages.GrantedPart)
    granted = await handlers.grant_part(_call(request), part, messages.GrantOptions())
    if granted.warnings:
        back = recipient_path(request.match_info["name"])
        return await respond(request, "granted.html", name=granted.name, warnings=granted.warnings, back=back)
    return _shown(request)


async def take_back(request: web.Request) -> web.Response:
    """Take back the grant of a share, or of a part of one."""
    sent = await form_of(request)
    if sent.get("whole"):
        share = unquote(sent.get("share", ""))
        options = messages.RevocationOptions(all_parts=bool(sent.get("all_parts")))
        narrowed = await handlers.revoke_share(_call(request, share=share), options)
    else:
        # Encoded, because a page shows symbols in place of some characters.
        fields = {name: unquote(text) for name in PLACE_FIELDS[:3] if (text := sent.get(name))}
        narrowed = await handlers.revoke_part(_call(request), decode_form(fields, messages.GrantPlace))
    if narrowed.still_readable_by:
        return await respond(
            request,
            "narrowed.html",
            name=narrowed.name,
            grants=narrowed.still_readable_by,
            back=recipient_path(request.match_info["name"]),
        )
    return _shown(request)


async def set_property(request: web.Request) -> web.Response:
    """Set a property, which conditions of grants use."""
    sent = await form_of(request)
    return await _changed_property(request, sent.get("property", "").strip(), sent.get("text", ""))


async def remove_property(request: web.Request) -> web.Response:
    return await _changed_property(request, unquote((await form_of(request)).get("property", "")), None)


async def _changed_property(request: web.Request, name: str, text: str | None) -> web.Response:
    changes = decode_form({"properties": {name: text}}, messages.PropertyChanges)
    await handlers.set_properties(_call(request), changes)
    return _shown(request)


async def set_networks(request: web.Request) -> web.Response:
    """Replace the networks of a recipient; without any it may connect from everywhere."""
    networks = (await form_of(request)).get("networks", "").replace(",", " ").split()
    await handlers.allow_networks(_call(request), decode_form({"networks": networks}, messages.NetworkList))
    return _shown(request)


async def delete(request: web.Request) -> web.Response:
    await handlers.delete_recipient(_call(request))
    return redirect(f"{PREFIX}/recipients")


def recipient_path(name: str) -> str:
    """Return the address of a recipient's page."""
    return f"{PREFIX}/recipients/{quote(name, safe='')}"


def _call(request: web.Request, **names: str) -> Call:
    seen = seen_by(request.get(FORM, {}), "seen")
    return Call(request, session_of(request).actor, names, seen)


def _shown(request: web.Request) -> web.Response:
    return redirect(recipient_path(request.match_info["name"]))


def _request(sent: Mapping[str, str], kind: type[T], **given: object) -> T:
    """Return the request of a form: lives, `FIELDS` by the names of the request, and the given values.

    What the page does not offer, such as `allowAbsent`, no form sets.
    """
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    lives = {
        name: _seconds(sent.get(field), unit_seconds)
        for name, (field, unit_seconds) in LIVES.items()
        if name in names
    }
    texts = {name: sent[name] for name in FIELDS & names & sent.keys()}
    return decode_query({**texts, **lives, **given}, kind)


def _seconds(sent: str | None, unit_seconds: int) -> int | None:
    """Return a number of a form in seconds; None for an empty field."""
    text = (sent or "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 6):  # noqa: PLR2004
        raise InvalidParameter("A duration is a whole number.")
    return int(text) * unit_seconds


async def link(request: web.Request) -> web.Response:
    """Make an activation link, and show it once."""
    life = _request(await form_of(request), messages.ActivationLinkLife)
    made = await handlers.add_activation_link(_call(request), life)
    return await _linked(request, made.recipient, made.activation_url)


async def _shown_once(request: web.Request, template: str, name: str, **values: str) -> web.Response:
    """Answer a page with a credential, which warns of an address for this machine alone."""
    local_host = request.app[SITE].config().local_host
    back = recipient_path(name)
    return await respond(request, template, status=201, name=name, back=back, local_host=local_host, **values)


async def _linked(request: web.Request, name: str, url: str) -> web.Response:
    return await _shown_once(request, "link.html", name, url=url)


async def _issued(request: web.Request, name: str, profile: Profile | None) -> web.Response:
    if profile is None:
        raise Unavailable("The server gave no profile.")
    text = profile_text(profile)
    return await _shown_once(
        request, "issued.html", name, text=text, data=base64.b64encode(text.encode()).decode()
    )


def file_row(entry: RecipientEntry) -> RecipientRow:
    grants = [
        Grant.of(granted.share, granted.schema, granted.table, granted.condition) for granted in entry.shares
    ]
    record = RecipientRecord(
        entry.name,
        "",
        0,
        _tokens(entry.tokens),
        tuple(grant.share for grant in grants if grant.is_whole_share),
        entry.networks,
        clients=tuple(ClientRecord(client.id, 0, _tokens(client.secrets)) for client in entry.clients),
        forbids_bearer_tokens=entry.forbid_bearer_tokens,
        grants=tuple(grant for grant in grants if not grant.is_whole_share),
        properties=tuple(sorted(entry.properties.items())),
    )
    return RecipientRow(record, is_stored=False, is_federated=bool(entry.oidc))


def _tokens(entries: Sequence[TokenEntry]) -> tuple[TokenRecord, ...]:
    ends = [entry.expires for entry in entries]
    return tuple(TokenRecord("", 0, None if end is None else round(end.timestamp() * 1000)) for end in ends)
