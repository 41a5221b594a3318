//! Notifications for the service manager, by systemd's `sd_notify` protocol.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Names the socket of the service manager. Unset or empty without one.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Time from the end of the drain to the end of the process: unfinished requests are marked
/// unknown (1 s), spans are sent to the collector (10 s), and the store is closed.
const AFTER_DRAIN: Duration = Duration::from_secs(20);

/// A change that the service manager waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// All listeners accept connections.
    Ready,
    /// The process drains for at most this time, then ends. Without this notice, the service
    /// manager kills a drain that is longer than its own stop timeout.
    Stopping(Duration),
}

impl Notice {
    /// Sends the notice, if there is a service manager. A failure is only logged.
    pub(crate) fn send(self) {
        let socket = env::var_os(SOCKET).filter(|socket| !socket.is_empty());
        let Some(socket) = socket else { return };
        if let Err(error) = self.send_to(&socket) {
            tracing::warn!(%error, "{SOCKET}: the service manager was not notified");
        }
    }

    fn send_to(self, socket: &OsStr) -> io::Result<()> {
        let address = address(socket)?;
        UnixDatagram::unbound()?.send_to_addr(self.message().as_bytes(), &address).map(drop)
    }

    fn message(self) -> String {
        match self {
            Self::Ready => "READY=1".into(),
            Self::Stopping(drain) => {
                let left = drain.saturating_add(AFTER_DRAIN).as_micros();
                format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={left}")
            }
        }
    }
}

/// Parses a path, or with a leading `@` a name in Linux's abstract namespace.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.as_encoded_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt as _;
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stop_timeout_is_extended_beyond_the_drain() {
        let message = Notice::Stopping(Duration::from_secs(300)).message();
        assert_eq!(message, "STOPPING=1\nEXTEND_TIMEOUT_USEC=320000000");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_abstract_socket_gets_the_notice() {
        use std::os::linux::net::SocketAddrExt as _;
        let name = format!("onceward-notice-{}", std::process::id());
        let listening = SocketAddr::from_abstract_name(&name).unwrap();
        let listening = UnixDatagram::bind_addr(&listening).unwrap();
        Notice::Ready.send_to(OsStr::new(&format!("@{name}"))).unwrap();
        let mut message = [0; 64];
        let length = listening.recv(&mut message).unwrap();
        assert_eq!(&message[..length], b"READY=1");
    }
}
