//! A service that writes down every effect, outside of whatever is killed.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// How the service treats one request, by the path's last word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Has its effect, and answers after this.
    After(Duration),
    /// Has its effect, and closes the connection instead of answering.
    CloseBefore,
    /// Answers half of its response and closes the connection.
    CloseWithin,
    /// Has its effect, and never answers.
    Silent,
}

/// A plain HTTP/1.1 service on threads. Each request's effect is counted by its key.
#[derive(Clone)]
pub(crate) struct Book {
    pub(crate) address: SocketAddr,
    effects: Arc<Mutex<HashMap<String, u32>>>,
    changed: Arc<Condvar>,
}

impl Book {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let book = Self { address, effects: Arc::default(), changed: Arc::default() };
        let served = book.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let book = served.clone();
                thread::spawn(move || book.serve(&stream));
            }
        });
        book
    }

    /// How often a key had its effect.
    pub(crate) fn effects(&self, key: &str) -> u32 {
        self.effects.lock().unwrap().get(key).copied().unwrap_or_default()
    }

    /// Waits until a key has had its effect: its request is in the service's hands.
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
        while let Some(request) = Asked::read(&mut reader) {
            *self.effects.lock().unwrap().entry(request.key.clone()).or_default() += 1;
            self.changed.notify_all();
            let body = format!("{{\"done\":\"{}\"}}", request.key);
            let head = format!(
                "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let mut writer = stream;
            match request.manner {
                Manner::After(time) => {
                    thread::sleep(time);
                    if writer.write_all(format!("{head}{body}").as_bytes()).is_err() {
                        return;
                    }
                }
                Manner::CloseBefore => return,
                Manner::CloseWithin => {
                    let _gone_anyway = writer.write_all(format!("{head}{}", &body[..4]).as_bytes());
                    return;
                }
                Manner::Silent => thread::sleep(Duration::from_secs(600)),
            }
        }
    }
}

struct Asked {
    key: String,
    manner: Manner,
}

impl Asked {
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
        let manner = match path.rsplit('/').next()? {
            "close-before" => Manner::CloseBefore,
            "close-within" => Manner::CloseWithin,
            "silent" => Manner::Silent,
            millis => Manner::After(Duration::from_millis(millis.parse().unwrap_or_default())),
        };
        Some(Self { key, manner })
    }
}

/// What came back for one POST; `None` if the connection broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
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

/// Sends one POST on a connection of its own.
pub(crate) fn post(to: SocketAddr, path: &str, key: &str) -> Option<Answer> {
    Line::open(to).post_and(path, key, "close")
}

/// A POST with a key.
pub(crate) fn request(path: &str, key: &str, then: &str) -> String {
    let body = format!("{{\"for\":\"{key}\"}}");
    format!(
        "POST /{path} HTTP/1.1\r\nhost: test\r\nidempotency-key: {key}\r\nconnection: {then}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A connection that is kept, and made again when it broke.
pub(crate) struct Line {
    to: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Line {
    pub(crate) fn open(to: SocketAddr) -> Self {
        Self { to, stream: None }
    }

    /// Sends one POST; `None` if the connection broke before its answer.
    pub(crate) fn post(&mut self, path: &str, key: &str) -> Option<Answer> {
        self.post_and(path, key, "keep-alive")
    }

    fn post_and(&mut self, path: &str, key: &str, then: &str) -> Option<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        stream.get_mut().write_all(request(path, key, then).as_bytes()).ok()?;
        let answer = Answer::read(&mut stream)?;
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
