"""Directory access: requests temporary credentials of a table, and lists its log with them.

In: a table with `dir` among its access modes. Out: a finding. The list has at most one key, which is not
shown.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from gateway.doctor import store_errors
from gateway.doctor.clock import utc_text
from gateway.doctor.connection_errors import SERVER, STORE
from gateway.doctor.findings import Findings, Owner, Problem
from gateway.doctor.server import Server
from gateway.doctor.shares import ChosenTable
from gateway.doctor.transport import Answer, Transport
from gateway.doctor.urls import parse_url

STEP = "credentials"
KINDS: Mapping[str, tuple[str, ...]] = {
    "awsTempCredentials": ("accessKeyId", "secretAccessKey", "sessionToken"),
    "r2Credentials": ("accessKeyId", "secretAccessKey", "sessionToken"),
    "azureUserDelegationSas": ("sasToken",),
    "gcpOauthToken": ("oauthToken",),
}
AZURE_VERSION = "2022-11-02"
LOG_DIRECTORY = "_delta_log"
DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class VendedCredentials:
    """Credentials of one directory."""

    kind: str
    location: str = field(repr=False)
    values: Mapping[str, str] = field(repr=False)
    expires_ms: int


@dataclass(frozen=True, slots=True)
class S3Bucket:
    """A bucket and where it is."""

    name: str
    endpoint: str
    region: str


def examine_directory(server: Server, table: ChosenTable, findings: Findings) -> None:
    """Request credentials, and list the log with them. Raises Problem."""
    answer = server.send("POST", f"{server.endpoint}{table.name.path}/temporary-table-credentials")
    server.check(answer, "a request for temporary credentials")
    credentials = _parse(answer)
    findings.hide(*credentials.values.values())
    end = credentials.expires_ms / 1000
    if end <= time.time():
        raise Problem(
            f"the credentials ended on {utc_text(end)}",
            Owner.PROVIDER,
            "look at the clock of the server; the recipient looks at the clock of this machine",
        )
    listed = _list(credentials, server.transport)
    if listed.status != 200:  # noqa: PLR2004 - OK
        raise store_errors.explain(listed, "the store of the directory", is_listing=True)
    findings.ok(STEP, f"{credentials.kind} list the log of the table, and end on {utc_text(end)}")


def _parse(answer: Answer) -> VendedCredentials:
    """Return the credentials of an answer, with or without the wrapper. Raises Problem."""
    document = answer.json()
    wrapped = document.get("credentials", document) if isinstance(document, dict) else None
    fields: Mapping[str, Any] = wrapped if isinstance(wrapped, dict) else {}
    kinds = [kind for kind in KINDS if isinstance(fields.get(kind), dict)]
    if len(kinds) != 1:
        raise _incomplete("exactly one kind of credentials")
    values = {name: fields[kinds[0]].get(name) for name in KINDS[kinds[0]]}
    location, expires = fields.get("location"), fields.get("expirationTime")
    if not all(isinstance(value, str) and value for value in values.values()):
        raise _incomplete(f"all fields of {kinds[0]}")
    if not isinstance(location, str) or not isinstance(expires, int):
        raise _incomplete("location and expirationTime")
    return VendedCredentials(kinds[0], location, values, expires)


def _incomplete(what: str) -> Problem:
    return Problem(
        f"{SERVER.name} answers a request for temporary credentials without {what}",
        Owner.PROVIDER,
        "update the server of the share",
    )


def _list(credentials: VendedCredentials, transport: Transport) -> Answer:
    """List the first key of the log."""
    # Keys are not encoded in locations: `?` and `#` are parts of them.
    scheme, separator, rest = credentials.location.partition("://")
    netloc, _, key = rest.partition("/")
    if not separator or parse_url(f"{scheme}://{netloc}") is None:
        raise _incomplete("a location")
    log = f"{key.strip('/')}/{LOG_DIRECTORY}".lstrip("/")
    if credentials.kind == "azureUserDelegationSas":
        return _list_azure(netloc, log, credentials.values["sasToken"], transport)
    if credentials.kind == "gcpOauthToken":
        query = urlencode({"prefix": f"{log}/", "maxResults": 1})
        url = f"https://storage.googleapis.com/storage/v1/b/{quote(netloc, safe='')}/o?{query}"
        headers = {"Authorization": f"Bearer {credentials.values['oauthToken']}"}
        return transport.send(STORE, "GET", url, headers=headers)
    if credentials.kind == "r2Credentials" and "@" in netloc:
        name, _, host = netloc.partition("@")
        bucket = S3Bucket(name, f"https://{host}", "auto")
    else:
        bucket = _bucket(netloc, transport)
    return _list_s3(bucket, log, credentials.values, transport)


def _bucket(name: str, transport: Transport) -> S3Bucket:
    """Return a bucket at the endpoint of the environment, or at AWS in its region."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint is None and region is None:
        region = _region(name, transport)
    region = region or DEFAULT_REGION
    return S3Bucket(name, (endpoint or _aws_endpoint(region)).rstrip("/"), region)


def _aws_endpoint(region: str) -> str:
    # A bucket is rarely asked, and the doctor needs nothing else of a configuration.
    from gateway.config.storages.session_policy import DOMAIN, DOMAINS, partition_of  # noqa: PLC0415

    return f"https://s3.{region}.{DOMAINS.get(partition_of('', region), DOMAIN)}"


def _list_s3(bucket: S3Bucket, log: str, keys: Mapping[str, str], transport: Transport) -> Answer:
    from botocore.auth import S3SigV4Auth  # noqa: PLC0415 - for this kind only
    from botocore.awsrequest import AWSRequest  # noqa: PLC0415 - as above
    from botocore.credentials import Credentials  # noqa: PLC0415 - as above

    query = urlencode({"list-type": 2, "max-keys": 1, "prefix": f"{log}/"}, quote_via=quote, safe="")
    request = AWSRequest("GET", f"{bucket.endpoint}/{quote(bucket.name, safe='')}?{query}")
    owned = Credentials(keys["accessKeyId"], keys["secretAccessKey"], keys["sessionToken"])
    S3SigV4Auth(owned, "s3", bucket.region).add_auth(request)
    return transport.send(STORE, "GET", request.url, headers=dict(request.headers.items()))


def _region(bucket: str, transport: Transport) -> str | None:
    """Return the region of a bucket of AWS, which it also names to strangers."""
    answer = transport.send(STORE, "HEAD", f"https://s3.amazonaws.com/{quote(bucket, safe='')}")
    return answer.headers.get("x-amz-bucket-region")


def _list_azure(netloc: str, log: str, sas: str, transport: Transport) -> Answer:
    container, _, host = netloc.partition("@")
    host = host.replace(".blob.", ".dfs.")
    query = urlencode({"resource": "filesystem", "recursive": "false", "maxResults": 1, "directory": log})
    url = f"https://{host}/{quote(container, safe='')}?{query}&{sas.removeprefix('?')}"
    return transport.send(STORE, "GET", url, headers={"x-ms-version": AZURE_VERSION})
