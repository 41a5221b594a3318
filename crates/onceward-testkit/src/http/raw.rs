//! HTTP/1.1 by hand: header names in any letters, bytes that no client library would send,
//! and bodies that break off.

use bytes::Bytes;
use http::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{Exchanged, Wire};

/// Sends a request as it stands and reads until the server closes.
pub(super) async fn exchange(wire: &Wire) -> Exchanged {
    let mut stream = open(wire, wire.body.len()).await?;
    stream.write_all(&wire.body).await.map_err(|why| why.to_string())?;
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes).await;
    // A server that refuses a request early may reset the rest of it.
    if let Err(why) = read
        && bytes.is_empty()
    {
        return Err(format!("no answer: {why}"));
    }
    parse(&bytes).ok_or_else(|| format!("no HTTP/1.1 in an answer of {} bytes", bytes.len()))
}

/// Sends a request that announces its body, and only half of that, and hangs up.
pub(super) async fn break_off(wire: &Wire) -> Result<(), String> {
    let mut stream = open(wire, wire.body.len()).await?;
    let half = &wire.body[..wire.body.len() / 2];
    stream.write_all(half).await.map_err(|why| why.to_string())?;
    stream.shutdown().await.map_err(|why| why.to_string())
}

async fn open(wire: &Wire, length: usize) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(wire.authority.as_str()).await;
    let mut stream = stream.map_err(|why| why.to_string())?;
    let mut head = format!("{} {} HTTP/1.1\r\n", wire.method, wire.path).into_bytes();
    head.extend(format!("Host: {}\r\nConnection: close\r\n", wire.authority).into_bytes());
    head.extend(format!("Content-Length: {length}\r\n").into_bytes());
    for (name, value) in &wire.headers {
        head.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    head.extend(b"\r\n");
    stream.write_all(&head).await.map_err(|why| why.to_string())?;
    Ok(stream)
}

fn parse(bytes: &[u8]) -> Option<(http::response::Parts, Bytes)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let (first, lines) = head.split_once("\r\n").unwrap_or((head, ""));
    let status: u16 = first.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let mut answer = Response::builder().status(status);
    for line in lines.split("\r\n").filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        answer = answer.header(name, value.trim());
    }
    let (parts, ()) = answer.body(()).ok()?.into_parts();
    let rest = &bytes[end + 4..];
    let chunked = parts.headers.get("transfer-encoding").is_some_and(|value| value == "chunked");
    let body = if chunked { unchunk(rest)? } else { rest.to_vec() };
    Some((parts, body.into()))
}

fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?.split(';').next()?;
        let size = usize::from_str_radix(size.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(end + 2..end + 2 + size)?);
        rest = rest.get(end + 2 + size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_in_chunks_is_put_together() {
        let text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        let (parts, body) = parse(text).unwrap();
        assert_eq!((parts.status.as_u16(), &body[..]), (200, &b"abcde"[..]));
    }

    #[test]
    fn what_is_not_http_is_no_answer() {
        assert!(parse(b"SSH-2.0-OpenSSH\r\n\r\n").is_none());
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-").is_none());
    }
}
