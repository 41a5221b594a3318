//! A payment provider without idempotency: every request that reaches it is a payment.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::message::Message;
use crate::network::Attempts;

/// The provider, with its ledger.
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    ledger: Ledger,
}

/// Ids of the payments of each order.
type Ledger = Arc<Mutex<HashMap<String, Vec<String>>>>;

impl Provider {
    pub(crate) fn start(attempts: &Attempts) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (ledger, attempts) = (Ledger::default(), attempts.clone());
        let kept = Arc::clone(&ledger);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (ledger, attempts) = (Arc::clone(&kept), attempts.clone());
                thread::spawn(move || serve(stream, &ledger, &attempts));
            }
        });
        Self { address, ledger }
    }

    /// Ids of an order's payments: its effects.
    pub(crate) fn payments(&self, order: &str) -> Vec<String> {
        self.ledger.lock().unwrap().get(order).cloned().unwrap_or_default()
    }
}

fn serve(mut stream: TcpStream, ledger: &Ledger, attempts: &Attempts) {
    let Some(request) = Message::read(&mut stream) else { return };
    let order = request.order();
    let id = pay(ledger, &order);
    match order.as_str() {
        // The payment is made, but the connection ends without an answer.
        "order-lost" => return,
        // The answer comes only after the client has given up and tried again.
        "order-timeout" => attempts.wait_for_a_retry(&order),
        _ => {}
    }
    let body = receipt(request.path(), &id).to_string();
    let length = body.len();
    let response = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    let _perhaps_gone = stream.write_all(response.as_bytes());
}

fn pay(ledger: &Ledger, order: &str) -> String {
    let mut ledger = ledger.lock().unwrap();
    let id = format!("pay_{}", ledger.values().map(Vec::len).sum::<usize>() + 1);
    ledger.entry(order.to_owned()).or_default().push(id.clone());
    id
}

/// The answer in the format of the library that uses this path.
fn receipt(path: &str, id: &str) -> Value {
    match path {
        "/v1/payment_intents" => json!({ "id": id, "object": "payment_intent" }),
        "/v72/payments" => json!({ "pspReference": id, "resultCode": "Authorised" }),
        "/v2/payments" => json!({ "payment": { "id": id, "status": "COMPLETED" } }),
        _ => json!({ "id": id }),
    }
}
