//! The optional parts of the scope: API version, parent resource and region.

use crate::service::Service;
use crate::test_gateway::TestGateway;

const SINGLE: &str = "[scope]\nsingle_tenant = true\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_clients_api_version_counts_and_is_refused_by_the_fingerprint_instead() {
    let service = Service::start().await;
    let scoped = format!("{SINGLE}api_version = {{ header = \"Api-Version\", default = \"1\" }}");
    let gateway = TestGateway::with(&service, &scoped).await;
    let version = |version: &str| format!("api-version: {version}\r\n");
    assert_eq!(gateway.post("/x", "k", "").await.status, 201);
    assert!(gateway.post("/x", "k", &version("1")).await.is_replay());
    assert!(!gateway.post("/x", "k", &version("2")).await.is_replay());
    assert_eq!(service.last().header("api-version"), Some("2"));
    let twice = gateway.post("/x", "k", &(version("1") + &version("2"))).await;
    assert_eq!((twice.problem(), service.runs()), ((400, "INVALID_API_VERSION".into()), 2));

    let service = Service::start().await;
    let compared = format!("{SINGLE}[defaults]\nfingerprint_api_version = \"Api-Version\"");
    let gateway = TestGateway::with(&service, &compared).await;
    assert_eq!(gateway.post("/x", "k", &version("1")).await.status, 201);
    assert_eq!(gateway.post("/x", "k", &version("2")).await.status, 422);
    assert_eq!(service.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_comes_from_the_path_of_the_named_operation() {
    let service = Service::start().await;
    let tables = format!(
        "{SINGLE}parent = {{ path = \"cart\" }}\n[[operations]]\nname = \"orders.create\"\n\
         route = \"/carts/{{cart}}/orders\""
    );
    let gateway = TestGateway::with(&service, &tables).await;
    assert_eq!(gateway.post("/carts/a/orders", "order-1", "").await.status, 201);
    assert!(gateway.post("/carts/a/orders", "order-1", "").await.is_replay());
    assert!(!gateway.post("/carts/b/orders", "order-1", "").await.is_replay());
    assert_eq!(gateway.post("/carts/%61/orders", "order-1", "").await.status, 422);
    assert_eq!(service.runs(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_header_counts_only_from_a_trusted_peer() {
    let service = Service::start().await;
    let scope = format!("{SINGLE}region = {{ header = \"x-region\" }}\n");
    let trusted =
        TestGateway::with(&service, &format!("{scope}trusted_peers = [\"127.0.0.1\"]")).await;
    assert_eq!(trusted.post("/x", "k", "x-region: eu\r\n").await.status, 201);
    assert!(!trusted.post("/x", "k", "x-region: us\r\n").await.is_replay());
    assert!(trusted.post("/x", "k", "x-region: eu\r\n").await.is_replay());
    assert_eq!(service.runs(), 2);

    let strangers = TestGateway::with(&service, &scope).await;
    let refused = strangers.post("/x", "k", "x-region: eu\r\n").await;
    assert_eq!((refused.problem(), service.runs()), ((400, "INVALID_REGION".into()), 2));
}
