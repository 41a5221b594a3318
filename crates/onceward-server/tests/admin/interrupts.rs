//! Ctrl-C during long commands.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::fixtures::{Finished, Target, completed, finish, onceward, record};

fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
}

fn end(child: Child) -> Finished {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Finished { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// The gateway answers one page and never the next.
#[test]
fn an_interrupted_export_leaves_no_file_and_says_how_far_it_came() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::Admin(listener.local_addr().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("records.jsonl");
    let mut command = target.command(&["records", "export", "--to", file.to_str().unwrap()]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut first, _) = listener.accept().unwrap();
    read_head(&first);
    let next = "ab".repeat(32);
    let page = format!("{{\"records\":[],\"undecodable\":[\"{next}\"],\"next\":\"{next}\"}}");
    // Each page has its own connection, so the test does not depend on the client's reuse.
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
    write!(first, "{head}content-length: {}\r\n\r\n{page}", page.len()).unwrap();
    drop(first);
    let (second, _) = listener.accept().unwrap();
    assert!(read_head(&second).contains(&next), "the second page is asked for");
    interrupt(&child);
    let done = end(child);
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(done.err.contains("after 1 records; nothing has changed"), "{done:?}");
    assert!(done.err.contains("records.jsonl was not written"), "{done:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "no partial file stays");
}

fn read_head(stream: &TcpStream) -> String {
    let (mut reader, mut head) = (BufReader::new(stream), String::new());
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    head
}

#[test]
fn an_interrupted_copy_says_how_far_it_came_and_goes_on_when_it_is_run_again() {
    const RECORDS: usize = 4_000;
    let Some(server) = onceward_services::postgres() else { return };
    let directory = tempfile::tempdir().unwrap();
    let from = format!("file:{}", directory.path().join("data").display());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = onceward_stores::connect(&from).await.unwrap();
        let mut writing = tokio::task::JoinSet::new();
        for key in 0..RECORDS {
            let store = store.clone();
            let one = record("acme", &key.to_string(), completed("paid"));
            writing.spawn(async move { store.import(&one).await.map(|_| ()).unwrap() });
        }
        writing.join_all().await;
    });
    let target = runtime.block_on(onceward_stores::connect(server.url())).unwrap();
    let arguments = ["store", "copy", "--from", &from, "--to", server.url()];
    let mut command = onceward(&arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while runtime.block_on(target.stats()).unwrap().records == 0 {
        assert!(Instant::now() < deadline, "nothing is copied");
    }
    interrupt(&child);
    let done = end(child);
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(done.err.contains("of about 4,000 records are in the target, all of them complete"));
    let copied = runtime.block_on(target.stats()).unwrap().records;
    assert!((1..RECORDS as u64).contains(&copied), "{copied}");
    let done = finish(&mut onceward(&[&arguments[..], &["--verify"]].concat()));
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains("4,000 records are the same in both"), "{done:?}");
}
