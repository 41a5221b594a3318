//! Detects an upstream, or a gateway of another region, that is the gateway itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use http::Uri;

use super::{Config, UpstreamUrl};

/// Timeout of a name lookup. A name that is not found in time is not an error: the service may
/// start later, and a loop is detected when its first request comes back.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// An address that this process listens on, and its setting.
#[derive(Debug, Clone)]
pub(crate) struct OwnAddress {
    pub(crate) setting: String,
    pub(crate) address: SocketAddr,
}

/// A setting that sends requests back to the gateway.
#[derive(Debug, thiserror::Error)]
#[error(
    "{setting}: {url} leads to {found}, this gateway's own address ({own}), so requests would \
     loop; set the address of {meant}"
)]
pub struct LoopError {
    setting: String,
    url: String,
    found: SocketAddr,
    own: String,
    /// The thing that the setting is the address of.
    meant: &'static str,
}

impl Config {
    /// The configured addresses, except those whose port the system chooses.
    pub(crate) fn own_addresses(&self) -> Vec<OwnAddress> {
        let listeners = self.listeners.iter().enumerate();
        let listeners =
            listeners.map(|(number, it)| (format!("listeners[{number}].address"), it.address));
        let admin = self.admin.map(|it| ("admin.address".to_owned(), it.address));
        let claims = self.claims.map(|it| ("claims.address".to_owned(), it.address));
        let own = listeners.chain(admin).chain(claims);
        let own = own.map(|(setting, address)| OwnAddress { setting, address });
        own.filter(|own| own.address.port() != 0).collect()
    }

    /// Refuses settings that send requests back to the gateway itself.
    pub(crate) fn check_loops(&self, own: &[OwnAddress]) -> Result<(), LoopError> {
        for (setting, url, meant) in self.destinations() {
            for found in look_up(&url.0) {
                if let Some(own) = own.iter().find(|own| leads_to(found, own.address)) {
                    let (url, own) = (url.to_string(), own.setting.clone());
                    return Err(LoopError { setting, url, found, own, meant });
                }
            }
        }
        Ok(())
    }

    /// The URLs that requests are sent to, each with its setting and what it is the address of.
    fn destinations(&self) -> Vec<(String, &UpstreamUrl, &'static str)> {
        let service = "the service";
        let mut destinations = vec![("upstream.url".to_owned(), &self.upstream.url, service)];
        let authorization = self.authorization.as_ref();
        destinations
            .extend(authorization.map(|it| ("authorization.url".to_owned(), &it.url, service)));
        let gateways = self.region.iter().flat_map(|region| &region.gateways);
        destinations.extend(gateways.map(|(region, url)| {
            let setting = format!("region.gateways.{}", region.as_str());
            (setting, url, "that region's gateway")
        }));
        destinations
    }
}

/// The addresses of a URL's host; none if the lookup fails or takes too long.
fn look_up(url: &Uri) -> Vec<SocketAddr> {
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("https") { 443 } else { 80 });
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    if let Ok(host) = host.parse::<IpAddr>() {
        return vec![SocketAddr::new(host, port)];
    }
    let (sender, receiver) = mpsc::channel();
    // A separate thread, because the system's lookup cannot be cancelled.
    thread::spawn(move || {
        let addresses = (host, port).to_socket_addrs();
        let _fails_after_the_timeout = sender.send(addresses.map(Vec::from_iter));
    });
    receiver.recv_timeout(LOOKUP_TIMEOUT).ok().and_then(Result::ok).unwrap_or_default()
}

/// Returns whether a connection to an address reaches a socket bound to `own`.
fn leads_to(address: SocketAddr, own: SocketAddr) -> bool {
    let host = match address.ip().to_canonical() {
        // A connection to the unspecified address goes to this machine.
        IpAddr::V4(host) if host.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(host) if host.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        host => host,
    };
    let same = match own.ip().to_canonical() {
        IpAddr::V4(own) if own.is_unspecified() => host.is_ipv4() && is_local(host),
        IpAddr::V6(own) if own.is_unspecified() => is_local(host),
        own => own == host,
    };
    address.port() == own.port() && same
}

/// Returns whether an address is this machine's: only then can a socket be bound to it.
fn is_local(host: IpAddr) -> bool {
    host.is_loopback() || UdpSocket::bind((host, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_a_socket_of_its_port_that_takes_it() {
        for (address, own, expected) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "0.0.0.0:80", true),
            ("127.0.0.1:80", "[::]:80", true),
            ("[::1]:80", "[::]:80", true),
            ("[::1]:80", "0.0.0.0:80", false),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("192.0.2.1:80", "0.0.0.0:80", false),
            ("192.0.2.1:80", "[::]:80", false),
        ] {
            let reached = leads_to(address.parse().unwrap(), own.parse().unwrap());
            assert_eq!(reached, expected, "{address} to {own}");
        }
    }
}
