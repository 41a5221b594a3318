//! Counts executions of duplicates, of which there should be none.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::try_join_all;

use crate::Fallible;
use crate::client::{Answer, Client};
use crate::orders::{BODY, CHANGED, SLOW};
use crate::server::Server;
use crate::subject::Subject;

/// Keys that are sent by many at once, and by how many.
pub(crate) const RACES: u64 = 200;
pub(crate) const RACERS: u64 = 20;

/// Keys whose first client hangs up.
pub(crate) const HANG_UPS: u64 = 50;

/// Duplicate executions of one subject.
#[derive(Debug, Clone)]
pub(crate) struct Duplicates {
    /// Executions beyond the first, of [`RACES`] × ([`RACERS`] − 1) possible ones.
    pub(crate) racing: u64,
    /// Executions beyond the first, of [`HANG_UPS`] possible ones.
    pub(crate) hung_up: u64,
    /// After an effect whose answer was 500.
    pub(crate) after_500: Retry,
    /// After another request under the same key.
    pub(crate) changed: Retry,
}

/// The answer to a second request under a key, and the handler's executions by then.
#[derive(Debug, Clone)]
pub(crate) struct Retry {
    pub(crate) answer: Answer,
    pub(crate) executions: u64,
}

/// Counts a subject's duplicate executions.
pub(crate) async fn count(subject: Subject) -> Fallible<Duplicates> {
    let server = Server::start(subject, None).await?;
    let address = server.address;
    let counted = Duplicates {
        racing: racing(address).await?,
        hung_up: hung_up(address).await?,
        after_500: retry(address, "/failing", BODY).await?,
        changed: retry(address, "/slow", CHANGED).await?,
    };
    server.stop().await?;
    Ok(counted)
}

/// Many requests with one key at once.
async fn racing(address: SocketAddr) -> Fallible<u64> {
    let mut clients = try_join_all((0..RACERS).map(|_| Client::connect(address))).await?;
    let mut beyond = 0;
    for race in 0..RACES {
        let key = format!("race-{race}");
        let answers = clients.iter_mut().map(|client| client.post("/slow", &key, BODY));
        let answers = try_join_all(answers).await?;
        if let Some(odd) = answers.iter().find(|answer| ![201, 409].contains(&answer.status)) {
            return Err(format!("a duplicate was answered by {odd:?}").into());
        }
        beyond += executions(&mut clients[0], &key).await? - 1;
    }
    Ok(beyond)
}

/// A client that hangs up in the middle, and tries again until it is told the result.
async fn hung_up(address: SocketAddr) -> Fallible<u64> {
    let mut beyond = 0;
    for round in 0..HANG_UPS {
        let key = format!("hang-up-{round}");
        let mut client = Client::connect(address).await?;
        let mut impatient = Client::connect(address).await?;
        impatient.send("/slow", &key, BODY).await?;
        // Not before the handler has had its effect.
        while executions(&mut client, &key).await? == 0 {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        drop(impatient);
        while client.post("/slow", &key, BODY).await?.status == 409 {
            tokio::time::sleep(SLOW).await;
        }
        beyond += executions(&mut client, &key).await? - 1;
    }
    Ok(beyond)
}

/// One request, and then another one under its key.
async fn retry(address: SocketAddr, path: &str, second: &str) -> Fallible<Retry> {
    let mut client = Client::connect(address).await?;
    let key = format!("retry-{}", path.trim_start_matches('/'));
    client.post(path, &key, BODY).await?;
    let answer = client.post(path, &key, second).await?;
    Ok(Retry { answer, executions: executions(&mut client, &key).await? })
}

async fn executions(client: &mut Client, key: &str) -> Fallible<u64> {
    client.number(&format!("/executions/{key}")).await
}
