"""Opens a snapshot with polars.scan_delta, which lists its files."""

import json
import sys

import polars as pl

frame = pl.scan_delta(sys.argv[1])
print(json.dumps({"columns": len(frame.collect_schema())}), flush=True)
