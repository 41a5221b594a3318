//! A service that records exactly what reaches it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A strict parser, which also records what it cannot parse.
#[derive(Clone)]
pub(super) struct StrictService {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl StrictService {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let serving = service.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let service = serving.clone();
                thread::spawn(move || service.serve(&stream));
            }
        });
        service
    }

    /// Paths of complete requests with this prefix, and everything that was not a request.
    pub(super) fn saw(&self, beginning: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let ours = |it: &&String| it.starts_with(beginning) || it.starts_with("garbage");
        seen.iter().filter(ours).cloned().collect()
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some(read) = request(&mut reader) {
            let broken = read.is_err();
            let (path, length) = read.unwrap_or_else(|garbage| (format!("garbage {garbage}"), 0));
            self.seen.lock().unwrap().push(path.clone());
            let answer = format!("HTTP/1.1 200 OK\r\nx-service: {path}\r\ncontent-length: ");
            let length = length.to_string();
            let answer = format!("{answer}{}\r\n\r\n{length}", length.len());
            let mut writer = stream;
            if broken || writer.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// Reads the next request: its path and its body's length. `None` at the end of input.
fn request(reader: &mut BufReader<&TcpStream>) -> Option<Result<(String, u64), String>> {
    let first = line(reader)?;
    let words: Vec<&str> = first.split(' ').collect();
    let [_, path, "HTTP/1.1"] = words[..] else { return Some(Err(first)) };
    let (mut length, mut chunked, mut framings) = (0, false, 0);
    loop {
        let header = line(reader)?;
        if header.is_empty() {
            break;
        }
        let Some((name, value)) = header.split_once(": ") else { return Some(Err(header)) };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "transfer-encoding" => chunked = value == "chunked",
            _ => continue,
        }
        framings += 1;
    }
    if framings > 1 {
        return Some(Err(format!("{path} has two framings")));
    }
    let length = if chunked { chunks(reader)? } else { skip(reader, length)? };
    Some(Ok((path.to_owned(), length)))
}

fn line(reader: &mut BufReader<&TcpStream>) -> Option<String> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).ok()?;
    let line = line.strip_suffix(b"\r\n")?;
    Some(String::from_utf8_lossy(line).into_owned())
}

fn skip(reader: &mut BufReader<&TcpStream>, length: u64) -> Option<u64> {
    let read = std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
    (read == length).then_some(length)
}

fn chunks(reader: &mut BufReader<&TcpStream>) -> Option<u64> {
    let mut all = 0;
    loop {
        let size = u64::from_str_radix(&line(reader)?, 16).ok()?;
        if size == 0 {
            while !line(reader)?.is_empty() {}
            return Some(all);
        }
        all += skip(reader, size)?;
        line(reader)?;
    }
}
