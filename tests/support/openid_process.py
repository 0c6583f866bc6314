"""The OpenID provider of the tests as a process."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jwt
import pytest
import tools

from support.identity_provider import private_key
from support.processes import wait_for_port


@contextmanager
def openid_process(directory: Path, program: str, port: int, *arguments: str) -> Iterator[None]:
    """Runs a program of the provider, with its port and its keys before its own arguments."""
    file = tools.program("openid_provider").with_name(program)
    if not file.exists():
        pytest.skip("the OpenID provider is not installed: the part `stores` of tests/run.py does it")
    described = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(private_key("RS256", "provider")))
    del described["key_ops"]
    keys = directory / "keys.json"
    keys.write_text(json.dumps({"keys": [{**described, "kid": "provider", "use": "sig", "alg": "RS256"}]}))
    command = ["node", file, str(port), keys, *arguments]
    with (directory / "provider.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        with process:
            try:
                wait_for_port(port, process)
                yield
            finally:
                process.terminate()
