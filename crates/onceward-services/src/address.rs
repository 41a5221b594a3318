//! Loopback addresses that no other test takes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU8, Ordering};

/// An address that is free now and stays free while its server is down, for tests that start a
/// server again on the same address.
///
/// Other tests bind port 0 of 127.0.0.1, and may get a port that was closed a moment ago. So this
/// is a loopback host of its own, which only Linux has without being asked.
///
/// # Panics
///
/// If there is no free port.
pub fn own_address() -> SocketAddr {
    let address = TcpListener::bind((own_host(), 0)).and_then(|listener| listener.local_addr());
    address.unwrap_or_else(|error| panic!("no free port: {error}"))
}

fn own_host() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    if !cfg!(target_os = "linux") {
        return Ipv4Addr::LOCALHOST.into();
    }
    let [.., high, low] = process::id().to_be_bytes();
    Ipv4Addr::new(127, high.max(1), low, NEXT.fetch_add(1, Ordering::Relaxed).max(1)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_can_be_bound_and_is_not_one_that_others_get() {
        let (one, two) = (own_address(), own_address());
        assert_ne!(one, two);
        assert!(TcpListener::bind(one).is_ok() && TcpListener::bind(two).is_ok());
    }
}
