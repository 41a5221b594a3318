//! HTTP/1.1 by hand: tests decide each byte that is sent, and see each byte that comes back.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than any expected wait.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// One connection.
pub(crate) struct Wire {
    stream: Box<dyn Io>,
    read: Vec<u8>,
}

/// One response.
#[derive(Debug, Clone)]
pub(crate) struct WireResponse {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
    pub(crate) trailers: String,
}

impl WireResponse {
    /// Value of a header; several are joined by commas.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let values = lines.filter(|(it, _)| it.eq_ignore_ascii_case(name));
        let values: Vec<_> = values.map(|(_, value)| value.trim()).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed").as_deref() == Some("true")
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> String {
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        problem["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Status and code of a problem.
    pub(crate) fn problem(&self) -> (u16, String) {
        (self.status, self.code())
    }
}

impl Wire {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        Self::on(TcpStream::connect(address).await.unwrap())
    }

    pub(crate) fn on(stream: impl Io + 'static) -> Self {
        Self { stream: Box::new(stream), read: Vec::new() }
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Reads the next response with its body.
    pub(crate) async fn answer(&mut self) -> WireResponse {
        self.answer_to("GET").await
    }

    /// Reads the next response, whose body depends on the method.
    pub(crate) async fn answer_to(&mut self, method: &str) -> WireResponse {
        let mut answer = self.head().await;
        let empty = method == "HEAD" || matches!(answer.status, 100..200 | 204 | 304);
        if empty {
            return answer;
        }
        let chunked = answer.header("transfer-encoding").as_deref() == Some("chunked");
        let length = answer.header("content-length").map(|it| it.parse::<usize>().unwrap());
        match (chunked, length) {
            (true, _) => {
                while let Some(chunk) = self.chunk().await {
                    answer.body += &chunk;
                }
                answer.trailers = self.line_block().await;
            }
            (false, Some(length)) => answer.body = self.take(length).await,
            (false, None) => answer.body = self.rest().await,
        }
        answer
    }

    /// Reads the head of the next response.
    pub(crate) async fn head(&mut self) -> WireResponse {
        let head = self.until("\r\n\r\n").await;
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no response: {head:?}"));
        WireResponse { status, head, body: String::new(), trailers: String::new() }
    }

    /// Reads the next chunk of a body; `None` after the last.
    pub(crate) async fn chunk(&mut self) -> Option<String> {
        let size = self.until("\r\n").await;
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        if size == 0 {
            return None;
        }
        let chunk = self.take(size + 2).await;
        Some(chunk.trim_end_matches("\r\n").to_owned())
    }

    /// Reads lines until an empty one.
    async fn line_block(&mut self) -> String {
        let mut lines = String::new();
        loop {
            match self.until("\r\n").await.as_str() {
                "\r\n" => return lines,
                line => lines += line,
            }
        }
    }

    pub(crate) async fn until(&mut self, end: &str) -> String {
        loop {
            let found = self.read.windows(end.len()).position(|it| it == end.as_bytes());
            match found {
                Some(at) => return self.take(at + end.len()).await,
                None => assert!(self.more().await, "ended: {:?}", text(&self.read)),
            }
        }
    }

    pub(crate) async fn take(&mut self, length: usize) -> String {
        while self.read.len() < length {
            assert!(self.more().await, "ended: {:?}", text(&self.read));
        }
        text(&self.read.drain(..length).collect::<Vec<_>>())
    }

    /// Reads until the other side closes.
    pub(crate) async fn rest(&mut self) -> String {
        while self.more().await {}
        text(&std::mem::take(&mut self.read))
    }

    /// Reads the next head; empty if the other side closes.
    pub(crate) async fn rest_or_head(&mut self) -> String {
        while !self.read.windows(4).any(|it| it == b"\r\n\r\n") && self.more().await {}
        text(&std::mem::take(&mut self.read))
    }

    /// Reads more; false at the end.
    async fn more(&mut self) -> bool {
        let reading = self.stream.read_buf(&mut self.read);
        let read = timeout(TIMEOUT, reading).await.expect("something comes in time");
        read.is_ok_and(|read| read > 0)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
