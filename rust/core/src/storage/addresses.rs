//! The addresses of a store's host in a random order. The resolver sorts them alike on every call, so all connections of
//! all processes would go to one server of a cluster.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::runtime;

/// Resolves the hosts of the clients of stores.
#[derive(Debug)]
pub(super) struct Resolver;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // The client replaces the port.
            let addresses = runtime::blocking(move || of_host(name.as_str(), 0)).await??;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Returns the addresses of a host. Blocks.
pub(super) fn of_host(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    (host, port).to_socket_addrs().map(|addresses| shuffled(addresses.collect()))
}

/// Those of the first one's family stay first: the machine may have no route to the others.
fn shuffled(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let order = RandomState::new();
    let is_first_ipv4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    addresses.sort_by_cached_key(|address| (address.is_ipv4() != is_first_ipv4, order.hash_one(address)));
    addresses
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn connections_begin_at_each_address_of_the_preferred_family() {
        let ipv6 = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 443));
        let ipv4: Vec<_> = (1..=4).map(|host| SocketAddr::from(([10, 0, 0, host], 443))).collect();
        let all = [ipv4.clone(), vec![ipv6]].concat();
        let orders: Vec<_> = (0..400).map(|_| shuffled(all.clone())).collect();
        assert!(orders.iter().all(|order| order.len() == 5 && order.last() == Some(&ipv6)));
        assert_eq!(orders.iter().map(|order| order[0]).collect::<HashSet<_>>(), ipv4.into_iter().collect());
    }

    #[test]
    fn a_host_without_addresses_is_an_error() {
        assert!(of_host("localhost", 9).unwrap().iter().all(|address| address.port() == 9));
        assert!(of_host("no-such-host.invalid", 9).is_err());
    }
}
