"""Which URLs the server fetches, and which addresses are those of the internet."""

from ipaddress import ip_address

import pytest

from gateway.config.fetched_urls import is_accepted_url, is_public


@pytest.mark.parametrize(
    ("host", "is_accepted"),
    [
        ("idp.example.com", True),
        ("bücher.example", True),
        ("8.8.8.8", True),
        ("[2606:4700::1111]", True),
        ("[64:ff9b::808:808]", True),
        ("localhost", False),
        ("127.0.0.1", False),
        ("127.1", False),
        ("2130706433", False),
        ("127。0。0。1", False),
        ("①②⑦.0.0.1", False),
        ("[::1]", False),
        ("[::ffff:169.254.169.254]", False),
        ("[64:ff9b::a9fe:a9fe]", False),
        ("[2002:a9fe:a9fe::]", False),
        ("[::169.254.169.254]", False),
        ("[fd00:ec2::254]", False),
        ("user@idp.example.com", False),
        ("ä..b", False),
        ("", False),
    ],
)
def test_no_way_of_writing_a_private_address_is_accepted(host: str, is_accepted: bool) -> None:
    assert is_accepted_url(f"https://{host}/x", allow_private_addresses=False) == is_accepted


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("64:ff9b::8.8.8.8", True),
        ("10.0.0.1", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("ff02::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::10.0.0.1", False),
        ("64:ff9b:1::10.0.0.1", False),
        ("64:ff9b:1:ffff:ffff:ffff:808:808", False),
        ("::ffff:0:10.0.0.1", False),
        ("::ffff:0:8.8.8.8", False),
        ("fec0::2", False),
        ("feff::1", False),
        ("::5efe:10.0.0.1", False),
        ("4000::1", False),
        ("5f00::1", False),
        ("2002:a00:1::", False),
        ("::10.0.0.1", False),
    ],
)
def test_an_address_that_stands_for_a_private_one_is_private(address: str, expected: bool) -> None:
    assert is_public(ip_address(address)) == expected
