"""A bare aiohttp server: streams the requested number of new bytes in chunks of 256 KiB, or one ready body.

    python bench/peers/bare_stream.py PORT [FILE]

`GET /stream/BYTES` streams; `POST /small` returns the content of the file.
"""

import sys
from pathlib import Path

import uvloop
from aiohttp import web

CHUNK = b"x" * (256 * 1024)


async def stream(request: web.Request) -> web.StreamResponse:
    """Return as many bytes as the path says."""
    left = int(request.match_info["bytes"])
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    while left > 0:
        # A new object each time, as in any server that makes its answer.
        await response.write(bytes(bytearray(CHUNK[: min(left, len(CHUNK))])))
        left -= len(CHUNK)
    await response.write_eof()
    return response


async def small(_: web.Request) -> web.Response:
    """Return the ready body."""
    return web.Response(body=SMALL, content_type="application/x-ndjson")


SMALL = Path(sys.argv[2]).read_bytes() if len(sys.argv) > 2 else b""
app = web.Application()
app.router.add_get("/stream/{bytes}", stream)
app.router.add_post("/small", small)
uvloop.install()
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
