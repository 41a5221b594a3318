//! HTTP/2 frames by hand (RFC 9113, 4.1).

use std::io::{Read, Write};
use std::net::TcpStream;

use super::Target;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// `GET path` of the host `shop`, in HPACK with indexed names and literal values.
pub(super) fn get(path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x41, 4];
    block.extend(b"shop");
    block.extend([0x44, u8::try_from(path.len()).unwrap()]);
    block.extend(path.as_bytes());
    block
}

/// A header without indexing.
pub(super) fn header(name: &str, value: &str) -> Vec<u8> {
    let mut block = vec![0];
    for text in [name, value] {
        assert!(text.len() < 127);
        block.push(u8::try_from(text.len()).unwrap());
        block.extend(text.as_bytes());
    }
    block
}

/// Opens a connection and sends the preface.
pub(super) fn hello(target: &Target) -> TcpStream {
    let mut stream = target.connect();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
    stream
}

/// Kinds of all frames until the other side closes.
pub(super) fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut kinds = Vec::new();
    let mut head = [0; 9];
    while stream.read_exact(&mut head).is_ok() {
        kinds.push(head[3]);
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        if stream.read_exact(&mut payload).is_err() {
            break;
        }
    }
    kinds
}
