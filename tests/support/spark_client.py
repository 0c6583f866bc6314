"""The Spark client's requests, replayed: headers, bodies and its checks of the answers.

The client's jar is not in the registries that the tests use, so its behaviour is written down here as its
sources show it: whatever raises in that client is an assertion here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, urlencode

from support.gateway_process import Answer, RunningGateway

READER_FEATURES = (
    "deletionVectors,columnMapping,timestampNtz,typeWidening,typeWidening-preview,"
    "variantType,variantType-preview,vacuumProtocolCheck,v2Checkpoint"
)
Line = dict[str, Any]


@dataclass
class Response:
    """An accepted response."""

    answer: Answer
    response_format: str
    version: int | None
    first_lines: list[bytes]
    files: list[Line]
    end: Line | None


@dataclass
class SparkClient:
    """One table through the client's eyes."""

    gateway: RunningGateway
    share: str = "demo"
    schema: str = "default"
    table: str = "orders"
    response_formats: str = "parquet,delta"
    end_stream_action: bool = False
    sent: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Form-encoded, as java.net.URLEncoder does: a blank is a plus sign."""
        share, schema, table = map(quote_plus, (self.share, self.schema, self.table))
        return f"/shares/{share}/schemas/{schema}/tables/{table}"

    def headers(self) -> dict[str, str]:
        """Capabilities go with every request."""
        capabilities = [f"responseformat={self.response_formats}"]
        if "delta" in self.response_formats:
            capabilities.append(f"readerfeatures={READER_FEATURES}")
        if self.end_stream_action:
            capabilities.append("includeendstreamaction=true")
        agent = "Delta-Sharing-Spark/4.0.0 Hadoop/3.4.1 Linux/5.15 Spark/4.0.0"
        return {"User-Agent": agent, "delta-sharing-capabilities": ";".join(capabilities), **self.sent}

    def version(self) -> int:
        """GET .../version."""
        answer = self.gateway.request("GET", f"{self.path}/version", headers=self.headers())
        assert answer.status == 200, answer.body
        return int(answer.headers["Delta-Table-Version"])

    def metadata(self) -> Response:
        """GET .../metadata; exactly two lines."""
        answer = self.gateway.request("GET", f"{self.path}/metadata", headers=self.headers())
        response = self.accepted(answer, end_wanted=self.end_stream_action)
        assert len(answer.lines) == 2 + (response.end is not None)
        return response

    def query(self, **body: Any) -> Response:
        """POST .../query; absent fields are left out, the JSON predicate is a string."""
        wanted = self.end_stream_action or any(
            name in body for name in ("maxFiles", "pageToken", "includeRefreshToken", "refreshToken")
        )
        headers = {**self.headers(), "Content-type": "application/json; charset=UTF-8"}
        answer = self.gateway.request("POST", f"{self.path}/query", body, headers)
        return self.accepted(answer, end_wanted=wanted)

    def query_pages(self, max_files: int, **body: Any) -> list[Response]:
        """The page loop: a following page repeats the body without what concerns refreshing."""
        pages = [self.query(**body, maxFiles=max_files)]
        following = {name: value for name, value in body.items() if not name.lower().endswith("refreshtoken")}
        while token := next_page_token(pages[-1]):
            pages.append(self.query(**following, maxFiles=max_files, pageToken=token))
            same_head(pages[0], pages[-1])
        return pages

    def changes(self, **parameters: Any) -> Response:
        """GET .../changes."""
        query = urlencode({**parameters, "includeHistoricalMetadata": "true"})
        answer = self.gateway.request("GET", f"{self.path}/changes?{query}", headers=self.headers())
        return self.accepted(answer, end_wanted=self.end_stream_action)

    def accepted(self, answer: Answer, *, end_wanted: bool) -> Response:
        """Checks a response as the client does."""
        assert answer.status == 200, answer.body
        assert answer.headers["Content-Type"] == "application/x-ndjson; charset=utf-8"
        capabilities = self.capabilities_of(answer)
        lines = answer.lines
        end = lines[-1].get("endStreamAction")
        assert (end is not None) == end_wanted
        assert all("endStreamAction" not in line for line in lines[:-1])
        announced = capabilities.get("includeendstreamaction") == "true"
        assert announced == (self.end_stream_action and end is not None)
        assert "asyncquery" not in capabilities
        assert end is None or "errorMessage" not in end, end
        return Response(
            answer=answer,
            response_format=capabilities.get("responseformat", "parquet"),
            version=int(answer.headers["Delta-Table-Version"]),
            first_lines=answer.body.split(b"\n")[:2],
            files=[line for line in lines[2:] if "endStreamAction" not in line],
            end=end,
        )

    def capabilities_of(self, answer: Answer) -> Mapping[str, str]:
        """Lower-cased, split on `;` and `=`, no blanks; one format, which was requested."""
        header = answer.headers.get("delta-sharing-capabilities", "")
        assert " " not in header
        found = dict(part.split("=") for part in header.lower().split(";") if part)
        assert found.get("responseformat", "parquet") in self.response_formats.split(",")
        return found


def next_page_token(page: Response) -> str | None:
    """The token of the following page. It goes into a URL unencoded."""
    assert page.end is not None
    token = page.end.get("nextPageToken") or None
    assert token is None or all(char.isalnum() or char in "-_" for char in token), token
    return token


def same_head(first: Response, other: Response) -> None:
    """Pages of one answer have one version, one format and the same first two lines, byte for byte."""
    assert other.first_lines == first.first_lines
    assert (other.version, other.response_format) == (first.version, first.response_format)


def files(responses: list[Response]) -> list[Line]:
    """The files of all pages."""
    return [line for response in responses for line in response.files]


def file_id(line: Line) -> str:
    """The id of a file line of either format."""
    (kind,) = line
    return line[kind]["id"]


def action(line: Line) -> tuple[str, Line]:
    """The Delta action in a delta-format line, and its name."""
    ((kind, found),) = line["file"]["deltaSingleAction"].items()
    return kind, found


def json_hint(tree: Mapping[str, Any]) -> str:
    """A predicate travels as a string."""
    return json.dumps(tree)
