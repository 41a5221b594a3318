//! `onceward demo`: a sample service behind a gateway, and commands to try.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::process::{Event, Signals, runtime};
use crate::config::{Config, StoreUrl};
use crate::gateway::Gateway;
use crate::telemetry;

/// Time that the sample service takes for an order.
const WORK: Duration = Duration::from_millis(300);

/// Arguments of `onceward demo`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DemoArgs {
    /// Address of the gateway
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Store of the records
    #[arg(long, value_name = "URL", default_value = "memory:")]
    store: StoreUrl,
}

/// Runs until Ctrl-C.
pub(crate) fn run(args: &DemoArgs) -> Result<(), Box<dyn Error>> {
    let mut config = Config::default();
    config.telemetry.log = "warn".into();
    config.scope.single_tenant = true;
    config.limits.connections = 256; // Enough for one person with curl.
    config.listeners[0].address = args.listen;
    config.store.url.clone_from(&args.store);
    telemetry::start(&config.telemetry)?;
    runtime()?.block_on(async {
        let mut signals = Signals::new()?;
        let (service, orders) = start_orders().await?;
        config.upstream.url = format!("http://{service}").parse()?;
        let gateway = Gateway::start(config).await?;
        print!("{}", instructions(gateway.addresses()[0], service));
        while let Event::Reload = signals.next().await {}
        println!("\nThe sample service created {} orders.", orders.lock().len());
        gateway.stop().await;
        Ok(())
    })
}

fn instructions(gateway: SocketAddr, service: SocketAddr) -> String {
    format!(
        r#"A sample orders service runs at http://{service}, and Onceward in front of it at
http://{gateway}. The service itself is not idempotent. In another terminal, try:

1. The first request: 201 and an order.

curl -i http://{gateway}/orders -H 'Idempotency-Key: order-1' -H 'Content-Type: application/json' -d '{{"item":"tea","amount":12.50}}'

2. The same request again: the same response, with `Idempotent-Replayed: true`. No second order.

curl -i http://{gateway}/orders -H 'Idempotency-Key: order-1' -H 'Content-Type: application/json' -d '{{"item":"tea","amount":12.50}}'

3. The same key for a different request: 422, which names `body:/amount`.

curl -i http://{gateway}/orders -H 'Idempotency-Key: order-1' -H 'Content-Type: application/json' -d '{{"item":"tea","amount":99.00}}'

4. Twenty requests at once: one 201, and nineteen 409 with a Retry-After.

seq 20 | xargs -P 20 -I@ curl -s -o /dev/null -w '%{{http_code}}\n' http://{gateway}/orders -H 'Idempotency-Key: order-2' -H 'Content-Type: application/json' -d '{{"item":"cake"}}' | sort | uniq -c

5. The number of orders: 2.

curl -s http://{gateway}/orders

Ctrl-C stops both.
"#
    )
}

type Orders = Arc<Mutex<HashMap<String, Value>>>;

/// Starts an orders service that creates a new order for every POST.
async fn start_orders() -> std::io::Result<(SocketAddr, Orders)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let orders = Orders::default();
    let served = Arc::clone(&orders);
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let orders = Arc::clone(&served);
            let service = service_fn(move |request| answer(Arc::clone(&orders), request));
            tokio::spawn(async move {
                // A broken connection is the client's problem.
                let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                served.await.ok();
            });
        }
    });
    Ok((address, orders))
}

async fn answer(
    orders: Orders,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    Ok(match (request.method(), path.as_str()) {
        (&Method::POST, "/orders") => create(&orders, request).await,
        (&Method::GET, "/orders") => {
            json_response(StatusCode::OK, &json!({ "orders": orders.lock().len() }))
        }
        (&Method::GET, path) => {
            let order = path.strip_prefix("/orders/").and_then(|id| orders.lock().get(id).cloned());
            match order {
                Some(order) => json_response(StatusCode::OK, &order),
                None => json_response(StatusCode::NOT_FOUND, &json!({ "error": "no such order" })),
            }
        }
        _ => json_response(StatusCode::METHOD_NOT_ALLOWED, &json!({ "error": "POST or GET" })),
    })
}

async fn create(orders: &Orders, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let Ok(body) = request.into_body().collect().await else {
        return json_response(
            StatusCode::BAD_REQUEST,
            &json!({ "error": "the body is incomplete" }),
        );
    };
    let Ok(wanted) = serde_json::from_slice::<Value>(&body.to_bytes()) else {
        return json_response(StatusCode::BAD_REQUEST, &json!({ "error": "send JSON" }));
    };
    sleep(WORK).await;
    let id = uuid::Uuid::new_v4().to_string();
    let order = json!({ "id": id, "order": wanted });
    orders.lock().insert(id.clone(), order.clone());
    let mut response = json_response(StatusCode::CREATED, &order);
    if let Ok(location) = format!("/orders/{id}").parse() {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn json_response(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{body}\n")));
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
