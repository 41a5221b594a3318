//! Two processes on one PostgreSQL.

use std::collections::BTreeMap;

use serde_json::json;

use crate::server::{Client, Server, WORKER, claim_of, code, granted};

#[tokio::test]
async fn a_claim_of_one_process_is_settled_by_the_other() {
    let Some(postgres) = onceward_services::postgres() else { return };
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut servers = directories.each_ref().map(|it| Server::start(postgres.url(), it.path(), ""));
    let [one, two] = servers.each_ref().map(|it| it.client(WORKER));

    let claim = claim_of("k");
    let grant = granted(&one.claim(&claim).await);
    // After a lost answer, the retry goes to the other process.
    assert_eq!(granted(&two.claim(&claim).await)["lease"]["fence"], grant["lease"]["fence"]);
    assert_eq!(code(&two.claim(&claim_of("k")).await), "IDEMPOTENCY_REQUEST_IN_PROGRESS");
    one_of_many_is_granted([&one, &two]).await;
    servers[0].program.kill();
    assert_eq!(two.settle("renew", &grant["lease"], &json!({})).await.status, 200);
    assert_eq!(two.settle("complete", &grant["lease"], &json!({ "result": 1 })).await.status, 200);
    assert_eq!(two.claim(&claim_of("k")).await.json()["result"], 1);
}

async fn one_of_many_is_granted(servers: [&Client; 2]) {
    let claims = (0..40).map(|number| {
        let client = servers[number % 2].clone();
        tokio::spawn(async move { client.claim(&claim_of("race")).await })
    });
    let mut seen = BTreeMap::<String, usize>::new();
    for claim in claims.collect::<Vec<_>>() {
        let answer = claim.await.unwrap();
        let what = answer.json()["code"].as_str().unwrap_or("granted").to_owned();
        *seen.entry(what).or_default() += 1;
    }
    assert_eq!(seen["granted"], 1, "{seen:?}");
    assert_eq!(seen["IDEMPOTENCY_REQUEST_IN_PROGRESS"], 39, "{seen:?}");
}
