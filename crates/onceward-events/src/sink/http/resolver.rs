//! Addresses that the sink may connect to.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

/// Resolves names, and refuses those that lead into private networks: a name in a public zone may
/// be made to point at any address.
#[derive(Debug, Clone)]
pub(super) struct CheckedResolver {
    private: bool,
}

impl CheckedResolver {
    /// For a URL's host. `localhost` says itself where it leads.
    pub(super) fn new(host: &str, private: bool) -> Self {
        Self { private: private || host.eq_ignore_ascii_case("localhost") }
    }
}

impl Service<Name> for CheckedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let private = self.private;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let addresses: Vec<_> = found.filter(|it| private || is_public(it.ip())).collect();
            if addresses.is_empty() {
                let refused = format!(
                    "{} has no public address; set private_addresses if it may lead into a private network",
                    name.as_str()
                );
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, refused));
            }
            Ok(addresses.into_iter())
        })
    }
}

/// True for addresses that are reachable from anywhere.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => {
            let [first, second, ..] = it.octets();
            let shared = first == 100 && (64..128).contains(&second);
            let benchmark = first == 198 && (second == 18 || second == 19);
            !(it.is_private()
                || it.is_loopback()
                || it.is_link_local()
                || it.is_unspecified()
                || it.is_broadcast()
                || it.is_multicast()
                || it.is_documentation()
                || shared
                || benchmark
                || first == 0
                || first >= 240)
        }
        IpAddr::V6(it) => match it.to_ipv4_mapped() {
            Some(it) => is_public(IpAddr::V4(it)),
            None => {
                let first = it.segments()[0];
                let unique_local = first & 0xfe00 == 0xfc00;
                let link_local = first & 0xffc0 == 0xfe80;
                // Translations of IPv4 (64:ff9b::/96, 2002::/16) may lead to a private address.
                let translated = first == 0x0064 || first == 0x2002;
                !(it.is_loopback()
                    || it.is_unspecified()
                    || it.is_multicast()
                    || unique_local
                    || link_local
                    || translated)
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_told_from_public_ones() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "224.0.0.1",
            "255.255.255.255",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_to_a_private_address_is_refused() {
        let resolve = async |host: &str, private| {
            let mut resolver = CheckedResolver::new(host, private);
            resolver.call("localhost".parse().unwrap()).await.map(Iterator::count)
        };
        let refused = resolve("example.com", false).await.unwrap_err();
        assert!(refused.to_string().contains("private_addresses"), "{refused}");
        assert!(resolve("example.com", true).await.unwrap() > 0);
        assert!(resolve("localhost", false).await.unwrap() > 0);
    }
}
