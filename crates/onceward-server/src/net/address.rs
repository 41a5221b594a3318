//! Listening addresses that no other process shares.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::config::OwnAddress;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// An address that only this process listens on.
///
/// Two gateways on one address, each with its own store, would run the same key twice. So the
/// first socket is bound and listens without `SO_REUSEPORT`, which fails if another process has
/// the address, or the same port on all interfaces. The option is set afterwards, for the sockets
/// of this process's other threads. If two processes start at once, one fails to bind or to listen.
#[derive(Debug)]
pub(crate) struct BoundAddress {
    setting: String,
    address: SocketAddr,
    socket: TcpListener,
}

/// Listening on an address failed.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: cannot listen on {address}: {source}{}", advice(source))]
pub struct ListenError {
    setting: String,
    address: SocketAddr,
    source: io::Error,
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process, or another setting of this configuration, already uses it: stop \
             that process, or choose another address here"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; this machine does not have that address: choose one of its own, or 0.0.0.0 for all"
        }
        _ => "",
    }
}

impl BoundAddress {
    /// Listens on an address. `setting` names where it is configured, for the error.
    pub(crate) fn bind(
        setting: impl Into<String>,
        address: SocketAddr,
    ) -> Result<Self, ListenError> {
        let setting = setting.into();
        let bound = exclusive(address).and_then(|socket| Ok((socket.local_addr()?, socket)));
        match bound {
            Ok((address, socket)) => Ok(Self { setting, address, socket }),
            Err(source) => Err(ListenError { setting, address, source }),
        }
    }

    /// The address, with the port that the system chose where the setting has port 0.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address and where it is configured.
    pub(crate) fn own(&self) -> OwnAddress {
        OwnAddress { setting: self.setting.clone(), address: self.address }
    }

    /// Returns the socket, for a listener with one thread.
    pub(crate) fn into_socket(self) -> TcpListener {
        self.socket
    }

    /// Returns `count` sockets, at least one. The system spreads connections among them.
    pub(crate) fn into_sockets(self, count: usize) -> Result<Vec<TcpListener>, ListenError> {
        let Self { setting, address, socket } = self;
        let shared = share(socket, address, count);
        shared.map_err(|source| ListenError { setting, address, source })
    }
}

fn exclusive(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = unbound(address)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn unbound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Closing connections of an earlier process do not hold the address.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Linux spreads connections among sockets that share a port. Elsewhere threads share one socket.
fn share(first: TcpListener, address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let mut sockets = Vec::with_capacity(count);
    if cfg!(target_os = "linux") && count > 1 {
        SockRef::from(&first).set_reuse_port(true)?;
    }
    for _ in 1..count {
        let socket = if cfg!(target_os = "linux") { join(address)? } else { first.try_clone()? };
        sockets.push(socket);
    }
    sockets.push(first);
    Ok(sockets)
}

fn join(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = unbound(address)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    fn loopback() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn an_address_is_bound_once_also_while_several_threads_share_it() {
        let bound = BoundAddress::bind("listeners[0].address", loopback()).unwrap();
        let address = bound.address();
        let told = BoundAddress::bind("admin.address", address).unwrap_err().to_string();
        assert!(told.contains("admin.address") && told.contains(&address.to_string()), "{told}");
        let _sockets = bound.into_sockets(2).unwrap();
        let everywhere = SocketAddr::from(([0, 0, 0, 0], address.port()));
        for taken in [address, everywhere] {
            let told = BoundAddress::bind("listeners[0].address", taken).unwrap_err();
            assert_eq!(told.source.kind(), io::ErrorKind::AddrInUse, "{taken}");
        }
    }

    #[test]
    fn connections_are_spread_over_the_sockets_of_this_process() {
        const CONNECTIONS: usize = 200;
        let bound = BoundAddress::bind("listeners[0].address", loopback()).unwrap();
        let address = bound.address();
        let sockets = bound.into_sockets(2).unwrap();
        let clients: Vec<_> =
            (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        let accepted: Vec<usize> =
            sockets.iter().map(|socket| socket.incoming().map_while(Result::ok).count()).collect();
        assert_eq!(accepted.iter().sum::<usize>(), clients.len());
        // A hash decides. Fewer than a quarter on one side has a chance of one in 10^13.
        assert!(accepted.iter().all(|count| *count >= CONNECTIONS / 4), "{accepted:?}");
    }

    #[test]
    fn a_closed_address_is_free_at_once() {
        let bound = BoundAddress::bind("listeners[0].address", loopback()).unwrap();
        let address = bound.address();
        let sockets = bound.into_sockets(2).unwrap();
        let client = TcpStream::connect(address).unwrap();
        drop(sockets);
        drop(client);
        assert!(BoundAddress::bind("listeners[0].address", address).is_ok());
    }
}
