//! Tests of the proxy.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use onceward_testkit::proxy::{Proxy, Trouble, Way};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A server that answers every message with itself.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _until_it_is_cut = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    address
}

async fn before_echo() -> (Proxy, TcpStream) {
    let proxy = Proxy::to(echo().await).await.unwrap();
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    (proxy, client)
}

/// Returns the bytes that arrive before the connection ends or falls silent.
async fn ask(client: &mut TcpStream, message: &str) -> String {
    let mut answer = vec![0; message.len()];
    let mut size = 0;
    let sent = client.write_all(message.as_bytes()).await;
    while sent.is_ok() && size < answer.len() {
        let read = client.read(&mut answer[size..]);
        match tokio::time::timeout(Duration::from_millis(500), read).await {
            Ok(Ok(more)) if more > 0 => size += more,
            _ => break,
        }
    }
    String::from_utf8(answer[..size].to_vec()).unwrap()
}

#[tokio::test]
async fn without_plans_everything_passes() {
    let (proxy, mut client) = before_echo().await;
    for _ in 0..3 {
        assert_eq!(ask(&mut client, "hello").await, "hello");
    }
    assert_eq!((proxy.fired(), proxy.passed(Way::Request), proxy.passed(Way::Reply)), (0, 3, 3));
}

#[tokio::test]
async fn the_nth_reply_is_cut_and_the_next_connection_is_well() {
    let (proxy, mut client) = before_echo().await;
    proxy.on_nth(2, Way::Reply, Trouble::Cut);
    assert_eq!(ask(&mut client, "one").await, "one");
    assert_eq!(ask(&mut client, "two").await, "");
    assert_eq!((proxy.fired(), proxy.passed(Way::Request)), (1, 2), "the server had it");
    let mut again = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(ask(&mut again, "three").await, "three");
}

#[tokio::test]
async fn a_request_that_is_cut_never_arrives() {
    let (proxy, mut client) = before_echo().await;
    proxy.on_nth(1, Way::Request, Trouble::Cut);
    assert_eq!(ask(&mut client, "lost").await, "");
    assert_eq!(proxy.passed(Way::Reply), 0);
}

#[tokio::test]
async fn a_halved_reply_is_half_there() {
    let (proxy, mut client) = before_echo().await;
    proxy.on_nth(1, Way::Reply, Trouble::Halve);
    assert_eq!(ask(&mut client, "abcdef").await, "abc");
}

#[tokio::test]
async fn delayed_replies_come_late_and_swallowed_ones_never() {
    let (proxy, mut client) = before_echo().await;
    proxy.on_nth(1, Way::Reply, Trouble::Delay(Duration::from_millis(50)));
    let begin = std::time::Instant::now();
    assert_eq!(ask(&mut client, "late").await, "late");
    assert!(begin.elapsed() >= Duration::from_millis(50));
    proxy.on_nth(1, Way::Reply, Trouble::Swallow);
    assert_eq!(ask(&mut client, "never").await, "");
}

#[tokio::test]
async fn a_shut_proxy_ends_connections_until_it_is_healed() {
    let (proxy, mut client) = before_echo().await;
    assert_eq!(ask(&mut client, "before").await, "before");
    proxy.shut().await;
    assert_eq!(ask(&mut client, "shut").await, "");
    let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(ask(&mut refused, "shut").await, "");
    proxy.heal();
    let mut again = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(ask(&mut again, "healed").await, "healed");
}
