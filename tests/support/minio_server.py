"""An S3 server with STS for tests: MinIO verifies session tokens, their end and their policies."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.processes import free_port, wait_for_port
from support.raw_http import get
from support.versitygw import S3Server
from support.waiting import wait_until


@contextmanager
def running(binary: Path, directory: Path) -> Iterator[S3Server]:
    """Runs a server over `directory` until the block ends; STS is at the same endpoint."""
    port, console = free_port(), free_port()
    server = S3Server(f"http://127.0.0.1:{port}")
    command = [str(binary), "server", "--quiet", "--address", f"127.0.0.1:{port}"]
    command += ["--console-address", f"127.0.0.1:{console}", str(directory)]
    variables = {
        "MINIO_ROOT_USER": server.access_key_id,
        "MINIO_ROOT_PASSWORD": server.secret_access_key,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
        # Without it the server refuses a directory on the root file system.
        "MINIO_CI_CD": "1",
    }
    log = directory.with_name(f"{directory.name}.log")
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **variables})
        try:
            wait_for_port(port, process)
            wait_until(lambda: get(f"{server.endpoint}/minio/health/ready")[0] == 200)
            yield server
        finally:
            process.terminate()
            process.wait(60)
