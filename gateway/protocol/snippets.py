"""Commands by which a recipient reads a share, to copy and paste."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

VERSIONS: Mapping[str, str] = {"delta-sharing": "1.4.2", "polars": "2.1.0", "duckdb": "1.5.5"}
"""The Python packages of the tests that run the commands."""
SPARK_PACKAGE = "io.delta:delta-sharing-spark_4.1_2.13:4.4.0"
"""The connector for Spark 4.1: since Delta 4.1 the version of Spark is in the name."""
SPARK_NOTE = (
    "# needs PySpark 4.1, Java 17 and a Maven registry with that artefact: --repositories URL names one"
)
SHORT = ("pandas", "Spark", "curl")
"""The clients that commands of the gateway print."""
OWN_ENVIRONMENT = (
    f"Install delta-sharing {VERSIONS['delta-sharing']} in another environment than this one: "
    "beside it a server does not start.\n\n"
)


@dataclass(frozen=True, slots=True)
class Snippet:
    """How to read a share by a client.

    Attributes:
        client: the name of the client.
        setup: a command that installs or starts it; empty without one.
        text: what to run, without the token, which is read from the profile.

    """

    client: str
    setup: str
    text: str

    @property
    def whole(self) -> str:
        """Return the text below a comment with the setup."""
        return f"# {self.setup}\n{self.text}" if self.setup else self.text


def snippets(
    profile: str, endpoint: str, share: str, table: str, *, has_token: bool = True
) -> Sequence[Snippet]:
    """Return how to read a share by each client; `table` is `share.schema.table`.

    `profile` is the path of the profile's file; `has_token`: it holds a bearer token, as some clients need.
    """
    name, url = (json.dumps(text, ensure_ascii=False) for text in (profile, f"{profile}#{table}"))
    load = f"data = delta_sharing.load_as_pandas({url})"
    listed = [
        Snippet(
            "Python",
            _pip("delta-sharing"),
            f"""\
import delta_sharing

print(delta_sharing.SharingClient({name}).list_all_tables())""",
        ),
        Snippet(
            "pandas",
            _pip("delta-sharing"),
            f"""\
import delta_sharing

{load}
print(data.head())""",
        ),
        Snippet(
            "Polars",
            _pip("delta-sharing", "polars"),
            f"""\
import delta_sharing
import polars

{load}
print(polars.from_pandas(data).head())""",
        ),
        Snippet(
            "DuckDB",
            _pip("delta-sharing", "duckdb"),
            f"""\
import delta_sharing
import duckdb

{load}
print(duckdb.sql("FROM data LIMIT 10"))""",
        ),
        Snippet(
            "Spark",
            f"pyspark --packages {SPARK_PACKAGE}",
            f'{SPARK_NOTE}\nspark.read.format("deltaSharing").load({url}).show()',
        ),
    ]
    if has_token:
        power_bi = f"""\
Get Data > Delta Sharing
Server URL: {endpoint}
Bearer token: bearerToken of the profile"""
        listed.append(Snippet("Power BI", "", power_bi))
        listing = f"{endpoint}/shares/{quote(share, safe='')}/all-tables"
        listed.append(Snippet("curl", "", curl(Path(profile), listing)))
    return listed


def short_text(profile: Path, endpoint: str, share: str, table: str) -> str:
    """Return the snippets of some clients as text for a terminal, without an indent that copies keep."""
    return OWN_ENVIRONMENT + "\n".join(
        f"{snippet.client}:\n{snippet.whole}\n"
        for snippet in snippets(str(profile), endpoint, share, table)
        if snippet.client in SHORT
    )


def _pip(*packages: str) -> str:
    return f"pip install {' '.join(f'{name}=={VERSIONS[name]}' for name in packages)}"


def file_word(name: str) -> str:
    """Return the name of a file as a word of a command line: quoted, and never an option."""
    return shlex.quote(f"./{name}" if name.startswith("-") else name)


def curl(profile: Path, url: str) -> str:
    """Return the command that fetches a URL with the token of a profile."""
    expression = r"""'s/.*"bearerToken": "\([^"]*\)".*/\1/p'"""
    token = f"$(sed -n {expression} {file_word(str(profile))})"
    return f'curl -s -H "Authorization: Bearer {token}" {shlex.quote(url)}'
