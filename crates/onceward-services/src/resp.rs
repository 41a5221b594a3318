//! Just enough of the Redis protocol to ask a server under test without a driver.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use crate::server::Server;

/// A paused server never answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A string of either kind, or a number as its digits.
    Text(String),
    /// An error.
    Error(String),
    /// Nothing.
    Nil,
    /// Several replies.
    List(Vec<Reply>),
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Sends one command over a connection of its own.
///
/// # Errors
///
/// If the connection is refused, or there is no answer within five seconds.
pub fn ask(server: &Server, words: &[&str]) -> io::Result<Reply> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&encode(words))?;
    read(&mut BufReader::new(stream))
}

fn encode(words: &[&str]) -> Vec<u8> {
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    command.into_bytes()
}

fn read(from: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::UnexpectedEof)?;
    match (kind, rest) {
        ("+" | ":", text) => Ok(text.into()),
        ("-", text) => Ok(Reply::Error(text.to_owned())),
        ("$" | "*", "-1") => Ok(Reply::Nil),
        ("$", size) => bulk(from, number(size)?),
        ("*", count) => {
            (0..number(count)?).map(|_| read(from)).collect::<io::Result<_>>().map(Reply::List)
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn bulk(from: &mut impl BufRead, size: usize) -> io::Result<Reply> {
    let mut bytes = vec![0; size + 2];
    from.read_exact(&mut bytes)?;
    bytes.truncate(size);
    Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
}

fn number(digits: &str) -> io::Result<usize> {
    digits.parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_reply_is_read() {
        let mut wire = "*5\r\n+OK\r\n:7\r\n$-1\r\n$4\r\na\r\nb\r\n-ERR no\r\n".as_bytes();
        let error = Reply::Error("ERR no".to_owned());
        let all = vec!["OK".into(), "7".into(), Reply::Nil, "a\r\nb".into(), error];
        assert_eq!(read(&mut wire).unwrap(), Reply::List(all));
    }

    #[test]
    fn a_connection_that_ends_is_an_error_and_not_an_answer() {
        assert!(read(&mut "".as_bytes()).is_err());
        assert!(read(&mut "$9\r\nshort".as_bytes()).is_err());
    }
}
