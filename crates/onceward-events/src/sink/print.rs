//! A sink that prints events.

use std::io::Write;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::json;

use super::{Delivery, Sink, SinkError};
use crate::event::StoredEvent;

/// Prints each event as a line of JSON, for trying a relay.
pub struct PrintSink(Mutex<Box<dyn Write + Send>>);

impl PrintSink {
    /// Prints to standard output.
    pub fn stdout() -> Self {
        Self::to(std::io::stdout())
    }

    /// Prints to a writer.
    pub fn to(writer: impl Write + Send + 'static) -> Self {
        Self(Mutex::new(Box::new(writer)))
    }

    fn print(&self, event: &StoredEvent) -> Delivery {
        let mut writer = self.0.lock();
        match writeln!(writer, "{}", line(event)).and_then(|()| writer.flush()) {
            Ok(()) => Delivery::Delivered,
            Err(error) => Delivery::Unavailable(SinkError::of(&error)),
        }
    }
}

impl std::fmt::Debug for PrintSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrintSink")
    }
}

#[async_trait]
impl Sink for PrintSink {
    async fn deliver(&self, events: &[Arc<StoredEvent>]) -> Vec<Delivery> {
        events.iter().map(|event| self.print(event)).collect()
    }

    fn name(&self) -> &str {
        "stdout"
    }
}

fn line(event: &StoredEvent) -> String {
    let payload = match serde_json::from_slice(&event.payload) {
        Ok(payload) => payload,
        Err(_) => json!(format!("[{} bytes of {}]", event.payload.len(), event.content_type)),
    };
    json!({
        "id": event.id.to_string(),
        "aggregate": event.aggregate.to_string(),
        "type": event.event_type,
        "headers": event.headers,
        "payload": payload,
    })
    .to_string()
}
