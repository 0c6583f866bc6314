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


def curl(profile: Path, url: str) -> str:
    """Return the command that fetches a URL with the token of a profile."""
    expression = r"""'s/.*"bearerToken": "\([^"]*\)".*/\1/p'"""
    token = f"$(sed -n {expression} {shlex.quote(str(profile))})"
    return f'curl -s -H "Authorization: Bearer {token}" {shlex.quote(url)}'
