"""Names of the protocol's headers, and content types."""

VERSION_HEADER = "Delta-Table-Version"
CAPABILITIES_HEADER = "delta-sharing-capabilities"
FILE_ID_HEADER = "fileidhash"
HINT_STATUS_HEADER = "delta-sharing-hint-status"
PRUNING_HEADER = "delta-sharing-pruning"
STALE_HEADER = "delta-sharing-stale"
"""Sent when the storage is down and the answer comes from a cached snapshot."""

JSON_CONTENT_TYPE = "application/json; charset=utf-8"
NDJSON_CONTENT_TYPE = "application/x-ndjson; charset=utf-8"
