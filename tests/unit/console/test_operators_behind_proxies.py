"""The address of an operator behind a trusted proxy: the proxy is no actor, and is not locked out for all."""

import http.client
import json
from urllib.parse import urlencode

import pytest
from support.gateway_directory import ADMIN_TOKEN, Gateway

pytestmark = pytest.mark.processes

STRANGER, OPERATOR = "203.0.113.9", "192.0.2.1"


def sign_in(gateway, secret, address):
    """The status of a sign-in through a proxy that reports an address."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.admin_port, timeout=20)
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Sec-Fetch-Site": "same-origin",
        "X-Forwarded-For": address,
    }
    try:
        connection.request("POST", "/console/sign-in", urlencode({"secret": secret}), headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_stranger_behind_a_proxy_locks_nobody_out_and_operators_are_recorded(tmp_path):
    gateway = Gateway(tmp_path, trustedProxies=["127.0.0.1"])
    with gateway.running():
        gateway.until(lambda: gateway.admin("GET", "/healthz")[0] == 200)
        statuses = [sign_in(gateway, f"guess-{number}", STRANGER) for number in range(14)]
        assert 429 in statuses[10:]
        assert sign_in(gateway, "a typing mistake", OPERATOR) == 401
        assert sign_in(gateway, ADMIN_TOKEN, OPERATOR) == 303
        # Who has the token is no stranger, even at the address of one.
        assert sign_in(gateway, ADMIN_TOKEN, STRANGER) == 303
        gateway.until(lambda: f"from {STRANGER}" in gateway.log())
        added = gateway.get(
            "/recipients",
            ADMIN_TOKEN,
            port=gateway.admin_port,
            method="POST",
            body={"name": "bob"},
            headers={"X-Forwarded-For": OPERATOR},
        )
        assert added[0] == 201
    records = gateway.records()
    assert f"admin:{OPERATOR}" in json.dumps(records)
    found = [
        (one["requestParams"]["actor"], one["sourceIPAddress"], one["response"]["statusCode"])
        for one in records
        if one["actionName"] == "signInToConsole"
    ]
    assert found[-3:] == [
        ("console", OPERATOR, 401),
        (f"console:operator:{OPERATOR}", OPERATOR, 200),
        (f"console:operator:{STRANGER}", STRANGER, 200),
    ]
    assert found[:-3] == [("console", STRANGER, 401)] * (len(found) - 3)


def test_reloads_are_in_the_audit_log_with_who_asked_for_them(tmp_path):
    gateway = Gateway(tmp_path)
    with gateway.running():
        gateway.until(lambda: gateway.admin("GET", "/healthz")[0] == 200)
        gateway.admin("POST", "/reload")
        gateway.path.write_text("nothing")
        gateway.admin("POST", "/reload")
    found = [
        (one["requestParams"]["actor"], one["response"]["statusCode"])
        for one in gateway.records()
        if one["actionName"] == "reloadConfiguration"
    ]
    assert found == [("admin:127.0.0.1", 200), ("admin:127.0.0.1", 400)]
