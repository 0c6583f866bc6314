"""Replays and decodes a snapshot in this process: reads the columns of every live file and writes no line."""

import json
import sys

from gateway import _native

table = _native.Table(_native.Storage.local(), sys.argv[1])
seen = table.snapshot().explain([], None)
print(json.dumps({"files": seen.kept}), flush=True)
