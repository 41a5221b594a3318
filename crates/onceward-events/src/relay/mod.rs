//! The relay: brings events from the outbox to a sink, in the order of their aggregates.
//!
//! Events are read once each ([`reader`]), wait by aggregate ([`queue`]), are delivered in batches
//! ([`batch`]), and are removed from the outbox once they are safe. Several relays divide the
//! aggregates in lanes ([`lanes`]).
//!
//! | file | contents |
//! |---|---|
//! | `mod` | `Relay`: settings in, events out |
//! | `delivery` | one relay at work: the loop and its steps |
//! | `reader` | reading each committed event once |
//! | `queue` | events by aggregate: ready, in flight, waiting, parked |
//! | `batch` | batches at the sink, and their results |
//! | `lanes` | leases of lanes, and their division among relays |
//! | `listener` | notifications of new events |
//! | `database`, `sql/` | statements |
//! | `settings`, `route`, `status` | limits; which aggregates; what a relay reports |

mod batch;
mod database;
mod delivery;
mod lanes;
mod listener;
mod queue;
mod reader;
mod route;
mod settings;
mod status;

use std::sync::Arc;

use onceward_stores::postgres::{OpenError, Server};
use tokio::sync::watch;

use crate::outbox::MIGRATIONS;
use crate::sink::{Sink, SinkError};
use delivery::Deliverer;

pub use route::{AggregateTypes, Route};
pub use settings::{OnFailure, RelaySettings};
pub use status::RelayStatus;

/// Delivers the events of an outbox to a sink, at least once, in the order of their aggregates.
///
/// Any number of relays may run on one outbox: they divide its aggregates. A relay that dies loses
/// its share when its lease ends; one that was paused past its lease stops by itself.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use onceward_events::{PrintSink, Relay, RelaySettings};
///
/// let sink = Arc::new(PrintSink::stdout());
/// let relay = Relay::open("postgres://localhost/app", RelaySettings::default(), sink).await?;
/// relay.run(async { drop(tokio::signal::ctrl_c().await) }).await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Relay {
    server: Server,
    settings: RelaySettings,
    sink: SharedSink,
    status: watch::Sender<RelayStatus>,
}

#[derive(Clone)]
struct SharedSink(Arc<dyn Sink>);

impl std::fmt::Debug for SharedSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

/// Why a relay does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// The outbox cannot be used.
    #[error("the outbox cannot be used")]
    Outbox(#[from] OpenError),
    /// The sink cannot be used with these settings.
    #[error("the sink {sink} cannot be used: {error}")]
    Sink {
        /// Its name.
        sink: String,
        /// The problem.
        #[source]
        error: SinkError,
    },
}

impl Relay {
    /// Checks the outbox at a URL and the sink. Brings the outbox's tables up to date unless
    /// `settings.postgres.migrate` says not to.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, the tables are missing or of another release, or the sink
    /// refuses its settings. A sink that is down is no error: the relay waits for it.
    pub async fn open(
        url: &str,
        settings: RelaySettings,
        sink: Arc<dyn Sink>,
    ) -> Result<Self, RelayError> {
        let postgres = &settings.postgres;
        let server = Server::new(url, postgres)?;
        let mut client = server.connect(postgres).await?;
        if postgres.migrate {
            MIGRATIONS.run(&mut client, &postgres.schema).await?;
        } else {
            MIGRATIONS.check(&client, &postgres.schema).await?;
        }
        sink.check()
            .await
            .map_err(|error| RelayError::Sink { sink: sink.name().to_owned(), error })?;
        let (status, _) = watch::channel(RelayStatus::default());
        Ok(Self { server, settings, sink: SharedSink(sink), status })
    }

    /// Reports of the running relay.
    pub fn status(&self) -> watch::Receiver<RelayStatus> {
        self.status.subscribe()
    }

    /// Delivers events until `stop` returns. Then it finishes its batches, within
    /// [`RelaySettings::drain`], and gives up its lanes.
    ///
    /// Dropped, it ends as in a crash: events in flight are delivered again by the next relay.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        Deliverer::new(self).run(stop).await;
    }
}
