//! One HTTP/1.1 message on a connection.

use std::io::Read as _;
use std::net::TcpStream;

/// A request, unparsed.
pub(crate) struct Message {
    /// Request line and headers, without the blank line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// Reads a request with its unparsed body: with a length, or in chunks, as stripe-go sends it.
    /// `None` if the connection ends before.
    pub(crate) fn read(stream: &mut TcpStream) -> Option<Self> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            read_more(stream, &mut bytes)?;
        };
        let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
        let mut message = Self { head, body: bytes.split_off(end + 4) };
        while !message.is_whole() {
            read_more(stream, &mut message.body)?;
        }
        Some(message)
    }

    fn is_whole(&self) -> bool {
        let length = self.header("content-length").and_then(|it| it.parse().ok());
        match self.header("transfer-encoding") {
            Some(_) => self.body.ends_with(b"0\r\n\r\n"),
            None => self.body.len() >= length.unwrap_or(0),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The order of a request, `order-…`, wherever a library puts it.
    pub(crate) fn order(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        let from = body.match_indices("order-").next().map_or("", |(at, _)| &body[at..]);
        let end = from.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'));
        from[..end.unwrap_or(from.len())].to_owned()
    }

    /// The path of the request.
    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// The request, changed to close its connection afterwards.
    pub(crate) fn alone(&self) -> Vec<u8> {
        let kept = self.head.lines().filter(|line| {
            let name = line.split(':').next().unwrap_or_default();
            !name.eq_ignore_ascii_case("connection")
        });
        let head = kept.collect::<Vec<_>>().join("\r\n");
        [head.as_bytes(), b"\r\nconnection: close\r\n\r\n", &self.body].concat()
    }
}

fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer) {
        Ok(0) | Err(_) => None,
        Ok(length) => {
            bytes.extend_from_slice(&buffer[..length]);
            Some(())
        }
    }
}
