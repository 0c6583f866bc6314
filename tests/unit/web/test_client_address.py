"""The client's address: proxies are read from the right, as far as they are trusted."""

import tracemalloc
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.networks import allowed, parse_address, parse_network, parse_networks
from gateway.web.client_address import client_address

PROXIES = parse_networks(["10.0.0.0/8", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "expected"),
    [
        pytest.param("203.0.113.9", [], "203.0.113.9", id="no_proxy"),
        pytest.param("203.0.113.9", ["192.0.2.1"], "203.0.113.9", id="a_header_from_a_stranger_is_ignored"),
        pytest.param("10.0.0.1", ["192.0.2.1"], "192.0.2.1", id="one_trusted_proxy"),
        pytest.param(
            "10.0.0.1", ["6.6.6.6, 192.0.2.1"], "192.0.2.1", id="what_a_client_wrote_itself_is_not_believed"
        ),
        pytest.param("10.0.0.1", ["," * 40 + "192.0.2.1"], "192.0.2.1", id="nor_does_it_hide_the_client"),
        pytest.param("10.0.0.1", ["," * 40, "192.0.2.1"], "192.0.2.1", id="nor_in_another_header"),
        pytest.param("10.0.0.1", ["192.0.2.1, 10.0.0.2"], "192.0.2.1", id="two_trusted_proxies"),
        pytest.param(
            "10.0.0.1", ["6.6.6.6", "192.0.2.1, 10.0.0.2"], "192.0.2.1", id="several_headers_are_one_list"
        ),
        pytest.param("10.0.0.1", [], "10.0.0.1", id="the_proxy_itself_asks"),
        pytest.param("10.0.0.1", ["192.0.2.1:4711"], "192.0.2.1", id="with_a_port"),
        pytest.param("10.0.0.1", ['"[2001:db8::7]:443"'], "2001:db8::7", id="bracketed_v6_with_a_port"),
        pytest.param("::ffff:10.0.0.1", ["::ffff:192.0.2.1"], "192.0.2.1", id="v4_in_v6"),
        pytest.param("fd00::1%eth0", ["2001:db8::7"], "2001:db8::7", id="v6_proxy_with_a_zone"),
        pytest.param("10.0.0.1", ["192.0.2.1, unknown"], None, id="an_unreadable_hop_is_nobody"),
        pytest.param("10.0.0.1", [""], None, id="an_empty_hop_is_nobody"),
        pytest.param("10.0.0.1", [",".join(["10.0.0.2"] * 32)], "10.0.0.2", id="many_trusted_proxies"),
        pytest.param("10.0.0.1", [",".join(["10.0.0.2"] * 33)], None, id="too_many_hops_are_nobody"),
        pytest.param(None, ["192.0.2.1"], None, id="a_unix_socket_has_no_address"),
    ],
)
def test_the_client_address(peer, forwarded_for, expected):
    found = client_address(peer, forwarded_for, PROXIES)
    assert found == (None if expected is None else ip_address(expected))


def test_without_a_list_every_address_is_allowed_and_with_one_only_those_listed():
    assert allowed((), None)
    assert not allowed(parse_networks(["0.0.0.0/0", "::/0"]), None)


def test_lists_accept_both_families_and_v4_mapped_addresses():
    networks = parse_networks(["192.0.2.0/24", "2001:db8::/32", "::ffff:198.51.100.0/120"])
    assert allowed(networks, parse_address("::ffff:192.0.2.77"))
    assert allowed(networks, parse_address("2001:db8:1::1"))
    assert allowed(networks, parse_address("198.51.100.200"))
    assert not allowed(networks, parse_address("192.0.3.1"))
    assert not allowed(networks, parse_address("2001:db9::1"))


@pytest.mark.parametrize("text", ["10.0.0.1/8", "300.0.0.0/8", "", "host", "10.0.0.0/33"])
def test_a_network_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        parse_network(text)


@pytest.mark.parametrize("last", [",", ",10.0.0.2" * 40])
def test_few_hops_are_split(last):
    tracemalloc.start()
    try:
        assert client_address("10.0.0.1", ["," * 8000] * 100 + [last], PROXIES) is None
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@given(st.lists(st.text(max_size=40), max_size=5), st.ip_addresses())
def test_headers_of_untrusted_peers_do_not_change_the_client_address(forwarded_for, peer):
    plain = parse_address(str(peer))
    assert client_address(str(peer), forwarded_for, ()) == plain


@given(st.lists(st.text(max_size=60), max_size=5), st.ip_addresses())
def test_the_hop_that_our_proxy_saw_wins_over_all_before_it(lies, address):
    seen = client_address("10.0.0.1", [*lies, str(address)], PROXIES)
    if not allowed(PROXIES, parse_address(str(address))):
        assert seen == parse_address(str(address))
