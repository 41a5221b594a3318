//! The part of Kafka's protocol that tests need to use a broker without a client.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A paused broker never answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// Type of a request, and its version: one that Kafka 4 supports and that has no tagged fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct Api {
    key: i16,
    version: i16,
}

pub(super) const PRODUCE: Api = Api { key: 0, version: 3 };
pub(super) const FETCH: Api = Api { key: 1, version: 4 };
const METADATA: Api = Api { key: 3, version: 4 };
pub(super) const CREATE_TOPICS: Api = Api { key: 19, version: 2 };
pub(super) const CREATE_ACLS: Api = Api { key: 30, version: 1 };

/// Sends one request on a new connection.
pub(super) fn ask(address: &str, api: Api, body: &Message) -> io::Result<Answer> {
    let mut request = Message::default();
    request.i16(api.key).i16(api.version).i32(0).text("onceward");
    request.0.extend(&body.0);
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&Message::default().bytes(&request.0).0)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(i32::from_be_bytes(length)).map_err(|_| invalid())?;
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes)?;
    let mut answer = Answer { bytes, at: 0 };
    let _correlation = answer.i32()?;
    Ok(answer)
}

/// Answer of a broker about its cluster.
#[derive(Debug)]
pub(super) struct Metadata {
    pub(super) cluster: String,
    /// Addresses of the running brokers by their identifiers.
    pub(super) brokers: BTreeMap<i32, String>,
    pub(super) topics: BTreeMap<String, Vec<Partition>>,
}

#[derive(Debug)]
pub(super) struct Partition {
    pub(super) index: i32,
    /// Negative if there is none.
    pub(super) leader: i32,
    pub(super) replicas: Vec<i32>,
    pub(super) in_sync: Vec<i32>,
}

/// Requests the cluster and some topics. A topic that does not exist has no partitions.
pub(super) fn metadata(address: &str, topics: &[&str]) -> io::Result<Metadata> {
    let mut names = Message::default();
    names.i32(topics.len() as i32);
    for topic in topics {
        names.text(topic);
    }
    metadata_of(address, &names)
}

/// Requests the cluster and all topics.
pub(super) fn metadata_of_all(address: &str) -> io::Result<Metadata> {
    metadata_of(address, Message::default().i32(-1))
}

fn metadata_of(address: &str, topics: &Message) -> io::Result<Metadata> {
    let mut body = Message(topics.0.clone());
    let create = 0;
    let mut from = ask(address, METADATA, body.i8(create))?;
    let _throttled_ms = from.i32()?;
    let brokers = from.array(|from| {
        let (id, host, port) = (from.i32()?, from.text()?, from.i32()?);
        let _rack = from.text()?;
        Ok((id, format!("{host}:{port}")))
    })?;
    let (cluster, _controller) = (from.text()?, from.i32()?);
    let topics = from.array(|from| {
        let (_error, name, _internal) = (from.i16()?, from.text()?, from.i8()?);
        Ok((name, from.array(partition)?))
    })?;
    let (brokers, topics) = (brokers.into_iter().collect(), topics.into_iter().collect());
    Ok(Metadata { cluster, brokers, topics })
}

fn partition(from: &mut Answer) -> io::Result<Partition> {
    let _error = from.i16()?;
    Ok(Partition {
        index: from.i32()?,
        leader: from.i32()?,
        replicas: from.array(Answer::i32)?,
        in_sync: from.array(Answer::i32)?,
    })
}

/// Bytes of a request.
#[derive(Debug, Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    pub(super) fn i8(&mut self, value: i8) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(super) fn i16(&mut self, value: i16) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(super) fn i32(&mut self, value: i32) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    pub(super) fn i64(&mut self, value: i64) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    /// Integer of variable length; small ones of either sign take one byte.
    pub(super) fn varint(&mut self, value: i64) -> &mut Self {
        let mut rest = (value << 1 ^ value >> 63) as u64;
        while rest >= 0x80 {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.i16(text.len() as i16).raw(text.as_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.i32(bytes.len() as i32).raw(bytes)
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }
}

/// Bytes of an answer, read from the front.
#[derive(Debug)]
pub(super) struct Answer {
    bytes: Vec<u8>,
    at: usize,
}

impl Answer {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), at: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(super) fn raw(&mut self, size: usize) -> io::Result<&[u8]> {
        let end = self.at.checked_add(size).filter(|end| *end <= self.bytes.len());
        let begin = std::mem::replace(&mut self.at, end.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(&self.bytes[begin..self.at])
    }

    fn fixed<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.raw(N)?.try_into().map_err(|_| invalid())
    }

    pub(super) fn i8(&mut self) -> io::Result<i8> {
        self.fixed().map(i8::from_be_bytes)
    }

    pub(super) fn i16(&mut self) -> io::Result<i16> {
        self.fixed().map(i16::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> io::Result<i32> {
        self.fixed().map(i32::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> io::Result<i64> {
        self.fixed().map(i64::from_be_bytes)
    }

    pub(super) fn varint(&mut self) -> io::Result<i64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.i8()? as u8;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(invalid())
    }

    /// A null text is an empty one.
    pub(super) fn text(&mut self) -> io::Result<String> {
        let size = self.i16()?.max(0);
        Ok(String::from_utf8_lossy(self.raw(size as usize)?).into_owned())
    }

    pub(super) fn bytes(&mut self) -> io::Result<&[u8]> {
        let size = self.i32()?.max(0);
        self.raw(size as usize)
    }

    pub(super) fn array<T>(
        &mut self,
        item: impl Fn(&mut Self) -> io::Result<T>,
    ) -> io::Result<Vec<T>> {
        let count = self.i32()?.max(0);
        (0..count).map(|_| item(self)).collect()
    }
}

pub(super) fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_variable_length_are_read_as_they_were_written() {
        for (value, bytes) in [(0, 1), (-1, 1), (63, 1), (64, 2), (i64::MAX, 10), (i64::MIN, 10)] {
            let mut message = Message::default();
            message.varint(value);
            assert_eq!(message.0.len(), bytes);
            assert_eq!(Answer::of(&message.0).varint().unwrap(), value);
        }
    }

    #[test]
    fn an_answer_that_ends_early_is_an_error() {
        assert!(Answer::of(&[0, 9, b'a']).text().is_err());
        assert!(Answer::of(&[0x80, 0x80]).varint().is_err());
    }
}
