//! A network between client and gateway that loses answers.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::message::Message;

/// Longest wait for an event, before the test fails.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Requests from the client and answers back to it, per order.
#[derive(Clone, Default)]
pub(crate) struct Attempts(Arc<(Mutex<HashMap<String, Counts>>, Condvar)>);

#[derive(Clone, Copy, Default)]
struct Counts {
    requests: usize,
    answers: usize,
}

impl Attempts {
    /// Number of requests that the client sent for an order.
    pub(crate) fn requests(&self, order: &str) -> usize {
        self.0.0.lock().unwrap().get(order).map_or(0, |counts| counts.requests)
    }

    /// Waits until the client has given up its first request for an order: it has got an answer to
    /// the second (409), or has sent a third because the gateway lets the second wait.
    pub(crate) fn wait_for_a_retry(&self, order: &str) {
        let (counts, changed) = &*self.0;
        let first_is_alone = |counts: &mut HashMap<String, Counts>| {
            counts.get(order).is_none_or(|counts| counts.answers < 1 && counts.requests < 3)
        };
        let waited = changed.wait_timeout_while(counts.lock().unwrap(), TIMEOUT, first_is_alone);
        drop(waited.unwrap());
    }

    /// Counts a request and returns its number within its order, from 1.
    fn request(&self, order: &str) -> usize {
        let mut all = self.0.0.lock().unwrap();
        let counts = all.entry(order.to_owned()).or_default();
        counts.requests += 1;
        self.0.1.notify_all();
        counts.requests
    }

    fn answer(&self, order: &str) {
        self.0.0.lock().unwrap().entry(order.to_owned()).or_default().answers += 1;
        self.0.1.notify_all();
    }
}

/// Starts passing requests on to the gateway, and returns the address for clients.
pub(crate) fn start(gateway: SocketAddr, attempts: &Attempts) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let attempts = attempts.clone();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let attempts = attempts.clone();
            thread::spawn(move || pass(stream, gateway, &attempts));
        }
    });
    address
}

/// The first answer about `order-cut` is lost: the connection ends instead.
fn pass(mut client: TcpStream, gateway: SocketAddr, attempts: &Attempts) -> Option<()> {
    let request = Message::read(&mut client)?;
    let order = request.order();
    let attempt = attempts.request(&order);
    let mut upstream = TcpStream::connect(gateway).ok()?;
    upstream.write_all(&request.alone()).ok()?;
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer).ok()?;
    if order == "order-cut" && attempt == 1 {
        return None;
    }
    client.write_all(&answer).ok()?;
    attempts.answer(&order);
    Some(())
}
