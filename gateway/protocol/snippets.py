"""Commands by which a recipient reads a share, to copy and paste."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from urllib.parse import quote


def snippets(profile: Path, endpoint: str, share: str, table: str) -> str:
    """Return the commands for Python, Spark and curl; `table` is `share.schema.table`.

    No command contains the token: it is read from the profile.
    """
    url = json.dumps(f"{profile}#{table}", ensure_ascii=False)
    return f"""\
Python (pip install delta-sharing):
    import delta_sharing
    print(delta_sharing.load_as_pandas({url}))

Spark (with the package io.delta:delta-sharing-spark_2.13):
    spark.read.format("deltaSharing").load({url}).show()

curl:
    {curl(profile, f"{endpoint}/shares/{quote(share, safe='')}/all-tables")}
"""


def labelled(
    profile: str, endpoint: str, share: str, table: str, *, has_token: bool
) -> list[tuple[str, str]]:
    """Return how to read a share by each client, as pairs of the client and its text.

    `profile` is the name of the profile's file; `has_token`: it holds a bearer token, as some clients need.
    """
    name, url = (json.dumps(text, ensure_ascii=False) for text in (profile, f"{profile}#{table}"))
    texts = {
        "Python": f"""\
# pip install delta-sharing
import delta_sharing

print(delta_sharing.SharingClient({name}).list_all_tables())""",
        "pandas": f"""\
# pip install delta-sharing
import delta_sharing

data = delta_sharing.load_as_pandas({url})
print(data.head())""",
        "Spark": f"""\
# with the package io.delta:delta-sharing-spark_2.13
spark.read.format("deltaSharing").load({url}).show()""",
        "DuckDB": f"""\
# pip install delta-sharing duckdb
import delta_sharing
import duckdb

data = delta_sharing.load_as_pandas({url})
print(duckdb.sql("FROM data LIMIT 10"))""",
    }
    if has_token:
        texts["Power BI"] = f"""\
Get Data > Delta Sharing
Server URL: {endpoint}
Bearer token: bearerToken of the profile"""
        texts["curl"] = curl(Path(profile), f"{endpoint}/shares/{quote(share, safe='')}/all-tables")
    return list(texts.items())


def file_word(name: str) -> str:
    """Return the name of a file as a word of a command line: quoted, and never an option."""
    return shlex.quote(f"./{name}" if name.startswith("-") else name)


def curl(profile: Path, url: str) -> str:
    """Return the command that fetches a URL with the token of a profile."""
    expression = r"""'s/.*"bearerToken": "\([^"]*\)".*/\1/p'"""
    token = f"$(sed -n {expression} {file_word(str(profile))})"
    return f'curl -s -H "Authorization: Bearer {token}" {shlex.quote(url)}'
