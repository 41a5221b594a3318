//! A small client that can hang up in the middle of a request.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Fallible;

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whether it is marked as a replay, under either of the usual names.
    pub(crate) replayed: bool,
    pub(crate) body: String,
}

impl Client {
    pub(crate) async fn connect(to: SocketAddr) -> Fallible<Self> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    pub(crate) async fn post(&mut self, path: &str, key: &str, body: &str) -> Fallible<Answer> {
        self.send(path, key, body).await?;
        self.answer().await
    }

    /// Only the request. Dropped afterwards, the client has hung up.
    pub(crate) async fn send(&mut self, path: &str, key: &str, body: &str) -> Fallible<()> {
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
             x-tenant: acme\r\nidempotency-key: {key}\r\ncookie: session=00000000000000000000xA\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        Ok(self.stream.write_all(request.as_bytes()).await?)
    }

    /// The number that a path answers with.
    pub(crate) async fn number(&mut self, path: &str) -> Fallible<u64> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await?;
        Ok(self.answer().await?.body.parse()?)
    }

    async fn answer(&mut self) -> Fallible<Answer> {
        let mut read = Vec::new();
        loop {
            if let Some(answer) = whole(&String::from_utf8_lossy(&read))? {
                return Ok(answer);
            }
            if self.stream.read_buf(&mut read).await? == 0 {
                return Err("the server closed the connection".into());
            }
        }
    }
}

/// The answer, once all of it is there. All servers here say how long their bodies are.
fn whole(text: &str) -> Fallible<Option<Answer>> {
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(None) };
    let head = head.to_ascii_lowercase();
    let value = |name: &str| {
        let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.filter(|(it, _)| *it == name).map(|(_, value)| value).next()
    };
    let length: usize = value("content-length").ok_or("an answer without its length")?.parse()?;
    if body.len() < length {
        return Ok(None);
    }
    let status = head.split(' ').nth(1).ok_or("an answer without a status")?.parse()?;
    let marks = ["idempotent-replayed", "idempotency-replayed"];
    let replayed = marks.into_iter().any(|mark| value(mark) == Some("true"));
    Ok(Some(Answer { status, replayed, body: body.to_owned() }))
}
