//! A server that records what it receives.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// Gives one answer to every HTTP/1.1 request, and records it.
pub(crate) struct RecordingServer {
    pub(crate) address: SocketAddr,
    heard: Receiver<(String, Vec<u8>)>,
}

impl RecordingServer {
    /// Answers 200.
    pub(crate) fn open() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_owned())
    }

    pub(crate) fn answering(answer: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, (say, heard)) = (listener.local_addr().unwrap(), mpsc::channel());
        let answer = Arc::<str>::from(answer);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (say, answer) = (say.clone(), Arc::clone(&answer));
                thread::spawn(move || listen(&stream, &say, &answer));
            }
        });
        Self { address, heard }
    }

    pub(crate) fn next(&self) -> (String, Vec<u8>) {
        self.heard.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    /// Bodies of all requests so far.
    pub(crate) fn all(&self) -> Vec<u8> {
        self.heard.try_iter().flat_map(|(_, body)| body).collect()
    }
}

fn listen(stream: &TcpStream, say: &Sender<(String, Vec<u8>)>, answer: &str) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or_default() == 0 {
                return;
            }
        }
        let length = head.to_lowercase();
        let length = length.split("content-length: ").nth(1).and_then(|it| it.lines().next());
        let mut body = vec![0; length.map_or(0, |it| it.parse().unwrap())];
        reader.read_exact(&mut body).unwrap();
        if say.send((head, body)).is_err() {
            return;
        }
        let mut writer = stream;
        writer.write_all(answer.as_bytes()).unwrap();
    }
}
