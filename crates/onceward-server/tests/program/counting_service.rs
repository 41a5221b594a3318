//! A service that counts its effects per key. It runs in the test, so kills do not affect it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Behaviour for one request, by the last word of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Has its effect, and answers after this time.
    After(Duration),
    /// Has its effect, and closes the connection without an answer.
    CloseBefore,
    /// Has its effect, and closes the connection within its answer.
    CloseWithin,
    /// Has its effect, and does not answer.
    Silent,
}

/// An HTTP/1.1 service on threads that counts the effects of each key.
#[derive(Clone)]
pub(crate) struct CountingService {
    pub(crate) address: SocketAddr,
    effects: Arc<Mutex<HashMap<String, u32>>>,
    changed: Arc<Condvar>,
}

impl CountingService {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let service = Self { address, effects: Arc::default(), changed: Arc::default() };
        let served = service.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let service = served.clone();
                thread::spawn(move || service.serve(&stream));
            }
        });
        service
    }

    /// Number of effects of a key.
    pub(crate) fn effects(&self, key: &str) -> u32 {
        self.effects.lock().unwrap().get(key).copied().unwrap_or_default()
    }

    /// Waits until a key has had its effect.
    pub(crate) fn wait_for(&self, key: &str) {
        let mut effects = self.effects.lock().unwrap();
        while !effects.contains_key(key) {
            let (woken, waited) =
                self.changed.wait_timeout(effects, Duration::from_secs(20)).unwrap();
            assert!(!waited.timed_out(), "{key} has had no effect");
            effects = woken;
        }
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(request) = KeyedRequest::read(&mut reader) {
            *self.effects.lock().unwrap().entry(request.key.clone()).or_default() += 1;
            self.changed.notify_all();
            let body = format!("{{\"done\":\"{}\"}}", request.key);
            let head = format!(
                "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let mut writer = stream;
            match request.behaviour {
                Behaviour::After(time) => {
                    thread::sleep(time);
                    if writer.write_all(format!("{head}{body}").as_bytes()).is_err() {
                        return;
                    }
                }
                Behaviour::CloseBefore => return,
                Behaviour::CloseWithin => {
                    let _gone_anyway = writer.write_all(format!("{head}{}", &body[..4]).as_bytes());
                    return;
                }
                Behaviour::Silent => thread::sleep(Duration::from_secs(600)),
            }
        }
    }
}

struct KeyedRequest {
    key: String,
    behaviour: Behaviour,
}

impl KeyedRequest {
    fn read(reader: &mut BufReader<&TcpStream>) -> Option<Self> {
        let mut first = String::new();
        reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
        let path = first.split(' ').nth(1)?.to_owned();
        let (mut key, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_lowercase().as_str() {
                "idempotency-key" => key = value.to_owned(),
                "content-length" => length = value.parse().ok()?,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let behaviour = match path.rsplit('/').next()? {
            "close-before" => Behaviour::CloseBefore,
            "close-within" => Behaviour::CloseWithin,
            "silent" => Behaviour::Silent,
            millis => Behaviour::After(Duration::from_millis(millis.parse().unwrap_or_default())),
        };
        Some(Self { key, behaviour })
    }
}

/// Response to one POST.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    fn read(stream: &mut impl BufRead) -> Option<Self> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            stream.read_line(&mut head).ok().filter(|read| *read > 0)?;
        }
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let lower = head.to_lowercase();
        let length = lower.split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        Some(Self { status, head, body: String::from_utf8(body).ok()? })
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.head.to_lowercase().contains("idempotent-replayed: true")
    }

    pub(crate) fn code(&self) -> Option<&str> {
        self.body.split("\"code\":\"").nth(1)?.split('"').next()
    }
}

/// Sends one POST on a new connection.
pub(crate) fn post(to: SocketAddr, path: &str, key: &str) -> Option<Response> {
    Connection::open(to).post_and(path, key, "close")
}

/// Text of a POST with a key.
pub(crate) fn request(path: &str, key: &str, then: &str) -> String {
    let body = format!("{{\"for\":\"{key}\"}}");
    format!(
        "POST /{path} HTTP/1.1\r\nhost: test\r\nidempotency-key: {key}\r\nconnection: {then}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A kept connection, reopened after it broke.
pub(crate) struct Connection {
    to: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Connection {
    pub(crate) fn open(to: SocketAddr) -> Self {
        Self { to, stream: None }
    }

    /// Sends one POST; `None` if the connection breaks before the response.
    pub(crate) fn post(&mut self, path: &str, key: &str) -> Option<Response> {
        self.post_and(path, key, "keep-alive")
    }

    fn post_and(&mut self, path: &str, key: &str, then: &str) -> Option<Response> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        stream.get_mut().write_all(request(path, key, then).as_bytes()).ok()?;
        let answer = Response::read(&mut stream)?;
        self.stream = Some(stream);
        Some(answer)
    }

    fn connect(&self) -> Option<BufReader<TcpStream>> {
        let stream = TcpStream::connect_timeout(&self.to, Duration::from_secs(2)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(BufReader::new(stream))
    }
}
