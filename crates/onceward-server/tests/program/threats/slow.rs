//! Slow clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{Bystander, Target};

const SILENT: usize = 2000;
const SLOW: usize = 500;
const LETTER: usize = 200;

/// A shorter timeout of heads.
const HURRIED: &str = "[limits]\nhead_timeout = \"2s\"\n";

#[test]
fn thousands_of_slow_clients_hold_up_nobody_and_are_let_go() {
    let target = Target::with(HURRIED);
    let begun = Instant::now();
    let silent: Vec<_> = (0..SILENT).map(|_| target.connect()).collect();
    let letters: Vec<_> = (0..LETTER).map(|_| saying(&target, b"P")).collect();
    let mut slow: Vec<_> = (0..SLOW).map(|_| saying(&target, b"")).collect();
    let bystander = Bystander::start(target.address());
    let head = b"POST /slow HTTP/1.1\r\nhost: shop\r\nidempotency-key: k\r\n\r\n";
    for letter in &head[..20] {
        slow.retain_mut(|stream| stream.write_all(&[*letter]).is_ok());
        std::thread::sleep(Duration::from_millis(50));
    }
    let working = target.program.cpu_ticks();
    std::thread::sleep(Duration::from_millis(300));
    let ticks = target.program.cpu_ticks() - working;
    println!("THREAT slow clients: {ticks} ticks of 10 ms work in 300 ms");
    target.grown("slow clients, while they wait", 96);
    let all = silent.into_iter().chain(letters).chain(slow);
    assert_eq!(all.filter_map(|stream| not_let_go(stream).err()).next(), None);
    println!("THREAT slow clients: all let go after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(15));
    bystander.end("slow clients");
    assert!(target.service.saw("/slow").is_empty());
}

fn saying(target: &Target, said: &[u8]) -> TcpStream {
    let mut stream = target.connect();
    stream.write_all(said).unwrap();
    stream
}

/// Fails if the gateway does not close the connection.
fn not_let_go(mut stream: TcpStream) -> Result<(), String> {
    let mut output = Vec::new();
    match stream.read_to_end(&mut output) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
