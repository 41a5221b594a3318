//! Home regions: two gateways, each with a service and a store of its own.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::relay::Relay;
use crate::service::{Service, raw_service};
use crate::test_gateway::{Settings, TestGateway, post};
use crate::wire::{Wire, WireResponse};

const SINGLE: &str = "[scope]\nsingle_tenant = true\n[admin]\naddress = \"127.0.0.1:0\"\n";
const PREFIX: &str = "of_key = { prefix_before = \"_\" }\n";
const FORWARD: &str = "others = \"forward\"\n";

/// `[region]` of a gateway, with further lines, and one other region.
fn region(name: &str, lines: &str, other: &str, at: &str) -> String {
    format!("[region]\nname = \"{name}\"\n{lines}[region.gateways]\n{other} = \"{at}\"\n")
}

/// The gateways of the regions `eu` and `us`.
struct Regions {
    eu: Node,
    us: Node,
}

struct Node {
    service: Service,
    gateway: TestGateway,
    relay: Relay,
}

impl Regions {
    /// Starts with further lines of `[region]`, and further tables.
    async fn start(lines: &str, tables: &str) -> Self {
        let (eu, us) = (Relay::start().await, Relay::start().await);
        let of_eu = region("eu", lines, "us", &us.base());
        let of_us = region("us", lines, "eu", &eu.base());
        let eu = Node::start(eu, &format!("{tables}{of_eu}")).await;
        Self { eu, us: Node::start(us, &format!("{tables}{of_us}")).await }
    }

    fn runs(&self) -> (usize, usize) {
        (self.eu.service.runs(), self.us.service.runs())
    }
}

impl Node {
    async fn start(relay: Relay, tables: &str) -> Self {
        let service = Service::start().await;
        let gateway = TestGateway::with(&service, tables).await;
        relay.to.send_replace(Some(gateway.address()));
        Self { service, gateway, relay }
    }

    async fn post(&self, key: &str) -> WireResponse {
        self.gateway.post("/x", key, "").await
    }
}

fn body(answer: &WireResponse) -> Value {
    serde_json::from_str(&answer.body).unwrap()
}

/// Whether a problem may be retried, and with the same key.
fn retry(answer: &WireResponse) -> (bool, bool) {
    let body = body(answer);
    (body["retryable"].as_bool().unwrap(), body["same_key"].as_bool().unwrap())
}

#[track_caller]
fn has(metrics: &str, lines: &[&str]) {
    for line in lines {
        assert!(metrics.lines().any(|it| it == *line), "{line} is not in:\n{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_executed_in_its_home_region_only_and_everywhere_replayed() {
    let regions = Regions::start(&format!("{PREFIX}{FORWARD}"), SINGLE).await;
    let first = regions.us.post("eu_1").await;
    assert_eq!((first.status, first.is_replay()), (201, false));
    assert!(regions.eu.post("eu_1").await.is_replay());
    let again = regions.us.post("eu_1").await;
    assert!(again.is_replay());
    assert_eq!((again.body, regions.runs()), (first.body, (1, 0)));
    assert!(!regions.us.post("us_1").await.is_replay());
    assert_eq!(regions.runs(), (1, 1));

    // The request was forwarded as it was sent, and the service does not see how it came.
    let seen = regions.eu.service.last();
    assert_eq!((seen.header("idempotency-key"), seen.body.as_str()), (Some("eu_1"), "{\"a\":1}"));
    assert_eq!((seen.header("host"), seen.header("onceward-region")), (Some("shop"), None));
    assert_eq!(seen.header("onceward-via").unwrap().split(", ").count(), 2);
    assert!(seen.header("onceward-operation").is_some());
    has(
        &regions.us.gateway.metrics().await,
        &[
            r#"onceward_region_requests_total{region="eu",decision="forwarded"} 2"#,
            r#"onceward_region_requests_total{region="us",decision="here"} 1"#,
            r#"onceward_region_requests_total{region="eu",decision="unreachable"} 0"#,
            r#"onceward_region_requests_total{region="-",decision="misrouted"} 0"#,
        ],
    );
    has(
        &regions.eu.gateway.metrics().await,
        &[r#"onceward_region_requests_total{region="eu",decision="here"} 3"#],
    );
}

/// All at once, at both gateways.
#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_at_once_at_both_gateways_one_is_executed_at_home() {
    let regions = Regions::start(&format!("{PREFIX}{FORWARD}"), SINGLE).await;
    let nodes = [regions.eu.gateway.address(), regions.us.gateway.address()];
    let attempts: Vec<_> = (0..20)
        .map(|number| {
            tokio::spawn(async move {
                let mut wire = Wire::to(nodes[number % 2]).await;
                wire.send(&post("/x", "eu_at_once", "")).await;
                wire.answer().await
            })
        })
        .collect();
    let mut executed = 0;
    for attempt in attempts {
        let answer = attempt.await.unwrap();
        match answer.status {
            201 => executed += usize::from(!answer.is_replay()),
            _ => assert_eq!(answer.code(), "IDEMPOTENCY_REQUEST_IN_PROGRESS"),
        }
    }
    assert_eq!((executed, regions.runs()), (1, (1, 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_region_is_refused_where_it_is_not_forwarded() {
    let regions = Regions::start(PREFIX, SINGLE).await;
    let refused = regions.us.gateway.post("/x?a=1", "eu_1", "").await;
    assert_eq!(refused.problem(), (421, "IDEMPOTENCY_KEY_OF_ANOTHER_REGION".into()));
    assert_eq!((retry(&refused), &body(&refused)["region"]), ((false, true), &json!("eu")));
    let home = format!("{}/x?a=1", regions.eu.relay.base());
    assert_eq!(refused.header("location"), Some(home));
    assert!(!refused.body.contains("eu_1"), "{}", refused.body);
    assert_eq!(regions.runs(), (0, 0));
    assert_eq!(regions.eu.post("eu_1").await.status, 201);
    has(
        &regions.us.gateway.metrics().await,
        &[r#"onceward_region_requests_total{region="eu",decision="refused"} 1"#],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_without_a_known_region_is_refused() {
    let regions = Regions::start(&format!("{PREFIX}{FORWARD}"), SINGLE).await;
    for node in [&regions.eu, &regions.us] {
        let unnamed = node.post("8e03978e").await;
        assert_eq!(unnamed.problem(), (400, "IDEMPOTENCY_KEY_WITHOUT_REGION".into()));
        assert_eq!(retry(&unnamed), (false, false));
        for key in ["ap_1", "EU_1", "_1", "order_17"] {
            let unknown = node.post(key).await;
            assert_eq!(unknown.problem(), (400, "IDEMPOTENCY_KEY_OF_UNKNOWN_REGION".into()));
            let detail = body(&unknown)["detail"].as_str().unwrap().to_owned();
            assert!(
                detail.contains("eu") && detail.contains("us") && !detail.contains(key),
                "{detail}"
            );
        }
    }
    assert_eq!(regions.runs(), (0, 0));
    has(
        &regions.eu.gateway.metrics().await,
        &[
            r#"onceward_region_requests_total{region="-",decision="unnamed"} 1"#,
            r#"onceward_region_requests_total{region="-",decision="unknown"} 4"#,
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_without_a_region_can_have_one_home() {
    let lines = format!("{PREFIX}{FORWARD}unnamed = {{ home = \"us\" }}\n");
    let regions = Regions::start(&lines, SINGLE).await;
    assert_eq!(regions.eu.post("8e03978e").await.status, 201);
    assert!(regions.us.post("8e03978e").await.is_replay());
    assert_eq!(regions.runs(), (0, 1));
}

/// The trap that `config check` warns of.
#[tokio::test(flavor = "multi_thread")]
async fn keys_without_a_region_that_run_here_run_in_each_region() {
    let regions = Regions::start(&format!("{PREFIX}unnamed = \"here\"\n"), SINGLE).await;
    assert_eq!(regions.eu.post("8e03978e").await.status, 201);
    assert!(!regions.us.post("8e03978e").await.is_replay());
    assert_eq!(regions.runs(), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_protected_is_not_routed() {
    let tables = format!("{SINGLE}[[operations]]\nroute = \"/pay\"\nmethod = \"PUT\"\n");
    let regions = Regions::start(&format!("{PREFIX}{FORWARD}"), &tables).await;
    let keyless = "POST /x HTTP/1.1\r\nhost: shop\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(regions.us.gateway.send(keyless).await.status, 201);
    assert_eq!(regions.us.gateway.get("/x").await.status, 201);
    let put = |path: &str| post(path, "eu_1", "").replacen("POST", "PUT", 1);
    assert_eq!(regions.us.gateway.send(&put("/x")).await.status, 201);
    assert_eq!(regions.runs(), (0, 3));
    // A protected PUT, with a key and without.
    assert_eq!(regions.us.gateway.send(&put("/pay")).await.status, 201);
    assert_eq!(regions.runs(), (1, 3));
    let keyless = "PUT /pay HTTP/1.1\r\nhost: shop\r\ncontent-length: 2\r\n\r\n{}";
    let refused = regions.us.gateway.send(keyless).await;
    assert_eq!(refused.problem(), (400, "MISSING_IDEMPOTENCY_KEY".into()));
    assert_eq!(regions.us.post("eu_1, us_1").await.problem().1, "INVALID_IDEMPOTENCY_KEY");
    assert_eq!(regions.runs(), (1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_forwarded_and_compared_at_home() {
    let regions = Regions::start(&format!("{PREFIX}{FORWARD}"), "").await;
    let token = |token: &str| format!("authorization: Bearer {token}\r\n");
    assert_eq!(regions.us.gateway.post("/x", "eu_1", &token("a")).await.status, 201);
    assert!(regions.eu.gateway.post("/x", "eu_1", &token("a")).await.is_replay());
    for node in [&regions.eu, &regions.us] {
        let other = node.gateway.post("/x", "eu_1", &token("b")).await;
        assert_eq!(other.problem().1, "IDEMPOTENCY_KEY_USED_WITH_OTHER_CREDENTIALS");
    }
    assert_eq!(regions.runs(), (1, 0));
}

/// The forwarding gateway has almost no memory for bodies, so it would refuse to buffer this one.
#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_body_streams() {
    let (eu, us) = (Relay::start().await, Relay::start().await);
    let lines = format!("{PREFIX}{FORWARD}");
    let small = "[limits]\nbuffer_bytes = \"1KiB\"\n";
    let of_us = format!("{SINGLE}{small}{}", region("us", &lines, "eu", &eu.base()));
    let of_eu = format!("{SINGLE}{}", region("eu", &lines, "us", &us.base()));
    let (eu, us) = (Node::start(eu, &of_eu).await, Node::start(us, &of_us).await);
    let large = |key: &str| {
        let text = "x".repeat(64 * 1024);
        let length = text.len();
        format!(
            "POST /x HTTP/1.1\r\nhost: shop\r\nidempotency-key: {key}\r\n\
             content-length: {length}\r\n\r\n{text}"
        )
    };
    assert_eq!(us.gateway.send(&large("us_1")).await.problem(), (503, "GATEWAY_BUSY".into()));
    assert_eq!(us.gateway.send(&large("eu_1")).await.status, 201);
    assert_eq!(eu.service.last().body.len(), 64 * 1024);
}

/// The home executes only whole requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_within_its_body_has_no_effect_and_retries() {
    let regions = Regions::start(&format!("{PREFIX}{FORWARD}"), SINGLE).await;
    let request = post("/x", "eu_1", "");
    let mut wire = regions.us.gateway.connect().await;
    wire.send(&request[..request.len() - 3]).await;
    while regions.eu.relay.connections.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    drop(wire);
    let retried = regions.us.post("eu_1").await;
    assert_eq!((retried.status, retried.is_replay(), regions.runs()), (201, false, (1, 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_home_is_told_as_not_executed_and_a_silent_one_as_perhaps() {
    let service = Service::start().await;
    let nowhere = Service::start().await;
    let closed = nowhere.base();
    nowhere.close().await;
    let silent = Relay::start().await;
    let cut = raw_service("HTTP/1.1 201 Created\r\ncontent-le").await;
    let gateways = format!("us = \"{closed}\"\nap = \"{}\"\nsa = \"{cut}\"\n", silent.base());
    let tables = format!(
        "{SINGLE}[region]\nname = \"eu\"\n{PREFIX}{FORWARD}response_timeout = \"300ms\"\n\
         [region.gateways]\n{gateways}"
    );
    let gateway = TestGateway::with(&service, &tables).await;
    let unreachable = gateway.post("/x", "us_1", "").await;
    assert_eq!(unreachable.problem(), (502, "HOME_REGION_UNREACHABLE".into()));
    assert_eq!((retry(&unreachable), &body(&unreachable)["region"]), ((true, true), &json!("us")));
    assert!(unreachable.body.contains("Nothing was executed"), "{}", unreachable.body);
    for (key, status) in [("ap_1", 504), ("sa_1", 502)] {
        let unanswered = gateway.post("/x", key, "").await;
        assert_eq!(unanswered.problem(), (status, "HOME_REGION_UNANSWERED".into()));
        assert_eq!(retry(&unanswered), (true, true));
        assert!(unanswered.body.contains("may have been executed"), "{}", unanswered.body);
    }
    assert_eq!(service.runs(), 0);
    has(
        &gateway.metrics().await,
        &[
            r#"onceward_region_requests_total{region="us",decision="unreachable"} 1"#,
            r#"onceward_region_requests_total{region="ap",decision="unanswered"} 1"#,
            r#"onceward_region_requests_total{region="sa",decision="unanswered"} 1"#,
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_page_names_its_region_and_is_found_through_every_gateway() {
    let tables = format!("{SINGLE}[defaults]\nin_progress = \"accepted\"\n");
    let regions = Regions::start(&format!("{PREFIX}{FORWARD}"), &tables).await;
    let mut first = regions.us.gateway.connect().await;
    first.send(&post("/stream", "eu_1", "")).await;
    regions.eu.service.until(|seen| seen.len() == 1).await;
    let accepted = regions.us.gateway.post("/stream", "eu_1", "").await;
    let page = accepted.header("location").unwrap();
    assert!(accepted.status == 202 && page.starts_with("/onceward/eu/operations/"), "{page}");
    regions.eu.service.open(2);
    assert_eq!(first.answer().await.body, "onetwothree");
    for node in [&regions.eu, &regions.us] {
        let shown = node.gateway.get(&page).await;
        assert_eq!((shown.status, &body(&shown)["state"]), (200, &json!("completed")));
        let href = body(&shown)["result"]["href"].as_str().unwrap().to_owned();
        assert_eq!(node.gateway.get(&href).await.body, "onetwothree");
    }
    // Links from before the gateway had a region.
    let id = page.rsplit('/').next().unwrap();
    let old = regions.eu.gateway.get(&format!("/onceward/operations/{id}")).await;
    assert_eq!((old.status, &body(&old)["state"]), (200, &json!("completed")));
    let elsewhere = regions.us.gateway.get(&format!("/onceward/us/operations/{id}")).await;
    assert_eq!(elsewhere.problem(), (404, "OPERATION_NOT_FOUND".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_page_of_another_region_is_refused_where_nothing_is_forwarded() {
    let regions = Regions::start(PREFIX, SINGLE).await;
    let page = "/onceward/eu/operations/01935d2a-7c3b-7aaa-8bbb-0123456789ab";
    let refused = regions.us.gateway.get(page).await;
    assert_eq!(refused.problem(), (421, "IDEMPOTENCY_KEY_OF_ANOTHER_REGION".into()));
    assert_eq!(refused.header("location"), Some(format!("{}{page}", regions.eu.relay.base())));
}

/// A gateway of `eu`, and another one that it takes for that of `us`, each with its service.
struct Mistaken {
    eu: TestGateway,
    of_eu: Service,
    other: TestGateway,
    of_other: Service,
}

impl Mistaken {
    async fn start(before: &str, other: &str) -> Self {
        let (of_eu, of_other) = (Service::start().await, Service::start().await);
        let tables = format!("{SINGLE}{other}");
        let settings = Settings { before, tables: &tables, ..Settings::default() };
        let other = settings.before(&of_other.base()).await;
        let at = format!("http://{}", other.address());
        let tables = format!("{SINGLE}{}", region("eu", &format!("{PREFIX}{FORWARD}"), "us", &at));
        let eu = TestGateway::with(&of_eu, &tables).await;
        Self { eu, of_eu, other, of_other }
    }

    /// Sends a key of `us` to `eu`, which nothing executes.
    async fn refused(&self) -> WireResponse {
        let refused = self.eu.post("/x", "us_1", "").await;
        assert_eq!(refused.problem(), (421, "REGION_MISROUTED".into()), "{}", refused.body);
        assert_eq!(
            (retry(&refused), self.of_eu.runs(), self.of_other.runs()),
            ((false, true), 0, 0)
        );
        refused
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_request_that_does_not_belong_here_is_refused_and_not_sent_on() {
    let lines = format!("{PREFIX}{FORWARD}");
    let other_home = "of_key = { prefix_before = \"-\" }\nunnamed = { home = \"eu\" }\n";
    let of = |name, lines, other| region(name, lines, other, "http://127.0.0.1:9");
    let shadow = format!("[defaults]\nmode = \"shadow\"\n{}", of("us", &lines, "eu"));
    for (before, tables, why) in [
        ("", String::new(), "has no [region]"),
        ("", of("ap", &lines, "us"), "region.name differ"),
        ("", of("us", other_home, "eu"), "its key belongs to another one"),
        ("protect_others = false", of("us", &lines, "eu"), "does not protect it"),
        ("", shadow, "does not protect it"),
    ] {
        let refused = Mistaken::start(before, &tables).await.refused().await;
        assert!(refused.body.contains(why), "{tables}: {}", refused.body);
    }
    let mistaken = Mistaken::start("", &of("ap", &lines, "us")).await;
    mistaken.refused().await;
    has(
        &mistaken.other.metrics().await,
        &[r#"onceward_region_requests_total{region="-",decision="misrouted"} 1"#],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_forwarded_to_its_sender_is_a_loop() {
    let (service, relay) = (Service::start().await, Relay::start().await);
    let lines = format!("{PREFIX}{FORWARD}");
    let tables = format!("{SINGLE}{}", region("eu", &lines, "us", &relay.base()));
    let gateway = TestGateway::with(&service, &tables).await;
    relay.to.send_replace(Some(gateway.address()));
    let looped = gateway.post("/x", "us_1", "").await;
    assert_eq!(looped.problem(), (508, "LOOP_DETECTED".into()));
    assert_eq!((service.runs(), relay.connections.load(Ordering::Relaxed)), (0, 1));
    assert!(
        gateway
            .reload(|config| {
                let region = config.region.as_mut().unwrap();
                let own = format!("http://{}", gateway.address());
                region.gateways.values_mut().for_each(|url| *url = own.parse().unwrap());
            })
            .unwrap_err()
            .contains("region.gateways.us")
    );
}

/// A second process of the same region, behind the same address, does not know the first one's mark.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_comes_back_to_another_process_of_its_sender_is_refused() {
    let lines = format!("{PREFIX}{FORWARD}");
    let same = region("eu", &lines, "us", "http://127.0.0.1:9");
    Mistaken::start("", &same).await.refused().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_in_a_header_counts_only_from_trusted_peers() {
    let header = "of_key = { header = \"X-Home-Region\" }\n";
    let tables = "[scope]\nsingle_tenant = true\ntrusted_peers = [\"127.0.0.1\"]\n\
        [[operations]]\nroute = \"/square\"\nkey = \"square\"\n";
    let regions = Regions::start(&format!("{header}{FORWARD}"), tables).await;
    let home = |node: &'static str| format!("x-home-region: {node}\r\n");
    assert_eq!(regions.us.gateway.post("/x", "k", &home("eu")).await.status, 201);
    assert!(regions.eu.gateway.post("/x", "k", &home("eu")).await.is_replay());
    assert_eq!(regions.runs(), (1, 0));
    let none = regions.us.gateway.post("/x", "k", "").await;
    assert_eq!(none.problem(), (400, "IDEMPOTENCY_KEY_WITHOUT_REGION".into()));
    let twice = regions.us.gateway.post("/x", "k", &(home("eu") + &home("us"))).await;
    assert_eq!(twice.problem(), (400, "IDEMPOTENCY_KEY_OF_UNKNOWN_REGION".into()));
    // The header decides before the body with the key is read.
    let square = "{\"idempotency_key\":\"k\"}";
    let length = square.len();
    let square = format!(
        "POST /square HTTP/1.1\r\nhost: shop\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n{}\r\n{square}",
        home("eu")
    );
    assert_eq!(regions.us.gateway.send(&square).await.status, 201);
    assert!(regions.eu.gateway.send(&square).await.is_replay());
    assert_eq!(regions.runs(), (2, 0));

    let strangers = tables.replace("127.0.0.1", "10.0.0.0/8");
    let regions = Regions::start(&format!("{header}{FORWARD}"), &strangers).await;
    let refused = regions.us.gateway.post("/x", "k", &home("eu")).await;
    assert_eq!(refused.problem(), (400, "IDEMPOTENCY_KEY_WITHOUT_REGION".into()));
    assert_eq!(regions.runs(), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn shadow_mode_executes_here_and_counts() {
    let tables = format!("{SINGLE}[defaults]\nmode = \"shadow\"\n");
    let regions = Regions::start(&format!("{PREFIX}{FORWARD}"), &tables).await;
    for key in ["eu_1", "us_1", "8e03978e", "ap_1"] {
        assert_eq!(regions.us.post(key).await.status, 201, "{key}");
    }
    assert_eq!(regions.runs(), (0, 4));
    has(
        &regions.us.gateway.metrics().await,
        &[
            r#"onceward_region_requests_total{region="eu",decision="shadow"} 1"#,
            r#"onceward_region_requests_total{region="us",decision="shadow"} 1"#,
            r#"onceward_region_requests_total{region="-",decision="shadow"} 2"#,
            r#"onceward_region_requests_total{region="us",decision="here"} 0"#,
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_moves_keys_is_refused_and_other_settings_of_regions_apply() {
    let regions = Regions::start(PREFIX, SINGLE).await;
    let gateway = &regions.us.gateway;
    let refused = gateway.reload(|config| config.region = None).unwrap_err();
    assert!(refused.contains("region (name, of_key, unnamed)"), "{refused}");
    assert_eq!(regions.us.post("eu_1").await.status, 421);
    let forward = gateway.reload(|config| {
        config.region.as_mut().unwrap().others = onceward_server::config::Others::Forward;
    });
    assert_eq!(forward, Ok(()));
    assert_eq!((regions.us.post("eu_1").await.status, regions.runs()), (201, (1, 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_with_a_region_forwards_over_a_store_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let (eu, us) = (Relay::start().await, Relay::start().await);
    let lines = format!("{PREFIX}{FORWARD}");
    let (of_eu, of_us) =
        (region("eu", &lines, "us", &us.base()), region("us", &lines, "eu", &eu.base()));
    let mut nodes = Vec::new();
    for (relay, tables) in [(eu, of_eu), (us, of_us)] {
        let service = Service::start().await;
        let store = format!("file:{}", directory.path().join(nodes.len().to_string()).display());
        let tables = format!("{SINGLE}{tables}");
        let settings = Settings { store: &store, tables: &tables, ..Settings::default() };
        let gateway = settings.before(&service.base()).await;
        relay.to.send_replace(Some(gateway.address()));
        nodes.push(Node { service, gateway, relay });
    }
    for _ in 0..3 {
        assert_eq!(nodes[1].post("eu_1").await.status, 201);
        assert_eq!(nodes[0].post("us_1").await.status, 201);
    }
    assert_eq!((nodes[0].service.runs(), nodes[1].service.runs()), (1, 1));
}
