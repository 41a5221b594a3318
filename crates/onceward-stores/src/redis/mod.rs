//! A store on a Redis or Valkey server, with replicas or as a cluster.
//!
//! A record is a hash that `redis-cli` can show. Each call is one script, in one round trip and on
//! the server's clock. The scripts are in `lua/` and restate [`machine`](onceward_core::machine),
//! one script for each transition. Fields, settings and guarantees are in `docs/stores.md`.
//!
//! **Best effort where servers fail over.** Replication is asynchronous: a replica that is promoted
//! may lack the last writes. If a claim is among them, its key is new again. [`Settings::wait`]
//! makes that rarer, not impossible. What a single server with an append-only file acknowledged
//! survives a crash as far as its `appendfsync` says.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the store; each call is one script |
//! | `lua/` | the scripts; `common` comes before all others, `decide` before `settle` and `resolve` |
//! | `scripts`, `reply` | scripts by their hash; their replies |
//! | `connection` | connections, time limits, whether a failed call was sent |
//! | `loss_markers` | detection of lost data, quarantine |
//! | `setup_library` | the sign of a store that survives a flush |
//! | `watchdog` | checks of the servers every 250 ms; health |
//! | `checks` | which servers are safe for records |
//! | `key_names`, `codec` | keys and buckets; records as hashes |
//! | `admin` | listing, purging and counting |
//! | `notifications` | waiters for settlements in other processes |
//! | `settings`, `error` | limits; what an error says about the effect |

mod admin;
mod checks;
pub(crate) mod codec;
pub(crate) mod connection;
mod error;
mod key_names;
mod loss_markers;
mod notifications;
mod reply;
mod scripts;
mod settings;
mod setup_library;
mod watchdog;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::{
    Claim, ClaimRequest, Fenced, Health, Imported, InvalidateRequest, Lapsed, Lease, LossAccepted,
    Outcome, Page, Purged, Query, Record, RecordId, RenewRequest, ResolveRequest, Retention,
    SettleRequest, Settlement, Stats, Store, StoreAdmin, StoreError, Tag, UnknownCause, Unpurged,
    Verdict,
};
use redis::Cmd;

use connection::{Address, Connections, Replication};
use key_names::{BUCKETS, Bucket, KeyNames};
use loss_markers::{AfterLoss, LossMarkers, ServerMarkers};
use notifications::Notifications;
use reply::{Marker, MaybeLost, ScriptReply};
use scripts::{CLAIM, IMPORT, INVALIDATE, RENEW, RESOLVE, SETTLE, Script};
use setup_library::SetupLibrary;
use watchdog::Watchdog;

pub use checks::Unsafe;
pub use error::{OpenError, Quarantined, Unreplicated};
pub use settings::{Allow, OnEmpty, Settings, Tls, Wait};

/// A store on a Redis or Valkey server, or on a cluster.
///
/// ```no_run
/// # async fn open() -> Result<(), onceward_stores::redis::OpenError> {
/// use onceward_stores::redis::{RedisStore, Settings};
///
/// let store = RedisStore::open("redis://localhost", Settings::default()).await?;
/// let nodes = ["redis://node-1:6379", "redis://node-2:6379"];
/// let cluster = RedisStore::open_cluster(nodes, Settings::default()).await?;
/// # Ok(())
/// # }
/// ```
pub struct RedisStore {
    connections: Arc<Connections>,
    names: Arc<KeyNames>,
    loss_markers: Arc<LossMarkers>,
    notifications: Notifications,
    watchdog: Watchdog,
    settings: Settings,
    purge_from: AtomicU16,
}

impl RedisStore {
    /// Opens the store on a server: `redis://[user:password@]host[:port][/database]`, or
    /// `rediss://` for TLS. Checks that the server is safe for records, and sets the store up if it
    /// is new.
    pub async fn open(url: &str, settings: Settings) -> Result<Self, OpenError> {
        Self::at(Address::Server(url.to_owned()), settings).await
    }

    /// Opens the store on a cluster. The given nodes name the others.
    pub async fn open_cluster<'a>(
        urls: impl IntoIterator<Item = &'a str>,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        let urls = urls.into_iter().map(str::to_owned).collect();
        Self::at(Address::Cluster(urls), settings).await
    }

    async fn at(address: Address, settings: Settings) -> Result<Self, OpenError> {
        check(&settings)?;
        choose_provider();
        let connections = Connections::new(&address, &settings).map_err(OpenError::Address)?;
        let urls = match &address {
            Address::Server(url) => vec![url.clone()],
            Address::Cluster(urls) => urls.clone(),
        };
        let servers = urls.iter().map(|url| connection::client(url, &settings.tls));
        let servers: Vec<_> = servers.collect::<Result<_, _>>().map_err(OpenError::Address)?;
        let reports = checks::look(&connections).await.map_err(OpenError::Unavailable)?;
        if let Some(fault) = checks::refused(&reports, settings.allow) {
            return Err(OpenError::Unsafe(fault));
        }
        let database = servers.first().map_or(0, connection::database);
        let library = SetupLibrary::new(&settings.prefix, database);
        let (connections, names) =
            (Arc::new(connections), Arc::new(KeyNames::new(&settings.prefix)));
        let loss_markers =
            Arc::new(LossMarkers::open(&connections, &names, &library, &settings).await?);
        let notifications = Notifications::new(servers, Arc::clone(&names));
        let (shared, allow) = ((Arc::clone(&connections), Arc::clone(&names)), settings.allow);
        let watchdog =
            Watchdog::start(shared.0, shared.1, Arc::clone(&loss_markers), allow, &reports);
        let purge_from = AtomicU16::new(0);
        Ok(Self { connections, names, loss_markers, notifications, watchdog, settings, purge_from })
    }

    /// Ends the quarantine after the server lost data: an operator states that no client will
    /// repeat a request from before the loss, or that its effects may happen twice. Returns in how
    /// many of the 1024 buckets claims were refused.
    ///
    /// Idempotent. After an error some buckets may be open again.
    pub async fn accept_loss(&self) -> Result<usize, StoreError> {
        self.loss_markers.accept();
        let reopened = self.markers().reopen().await?;
        tracing::warn!(reopened, "an operator accepted that records were lost");
        Ok(reopened)
    }

    fn markers(&self) -> ServerMarkers<'_> {
        ServerMarkers { connections: &self.connections, names: &self.names }
    }

    /// All buckets, from another one each time, so that none is always last.
    fn buckets_in_turn(&self) -> impl Iterator<Item = Bucket> + use<> {
        let first = self.purge_from.fetch_add(7, Ordering::Relaxed) % BUCKETS;
        (first..BUCKETS).chain(0..first).map(Bucket)
    }

    async fn claim_with_epoch(
        &self,
        request: &ClaimRequest,
        epoch: &str,
    ) -> Result<MaybeLost<Claim>, StoreError> {
        let (bucket, fingerprint) = (Bucket::of(&request.id), &request.fingerprint);
        let record = self.names.record(&request.id);
        let (mark, index) = (self.names.mark(bucket), self.names.index(bucket));
        let value =
            self.connections.run(&CLAIM, Replication::Checked { key: &record }, |command| {
                command.arg(3).arg(&record).arg(&mark).arg(&index).arg(epoch);
                command.arg(codec::hex(request.owner.expose()));
                command.arg(codec::hex(fingerprint.digest())).arg(fingerprint.rules());
                command.arg(millis(request.lease));
                command.arg(u8::from(request.lapsed == Lapsed::Takeover));
                command.arg(request.operation.to_string());
                command.arg(&request.id.as_bytes()[..]).arg(self.touch());
                command.arg(u8::from(request.unpurged == Unpurged::Keep));
                codec::put_fields(request, command);
            });
        ScriptReply::read(value.await?)?.claim()
    }

    async fn import_with_epoch(
        &self,
        record: &Record,
        epoch: &str,
    ) -> Result<MaybeLost<Imported>, StoreError> {
        let (bucket, name) = (Bucket::of(&record.id), self.names.record(&record.id));
        let (mark, index) = (self.names.mark(bucket), self.names.index(bucket));
        let channel = self.names.channel(&record.id);
        let value = self.connections.run(&IMPORT, Replication::Checked { key: &name }, |command| {
            command.arg(3).arg(&name).arg(&mark).arg(&index).arg(epoch);
            command.arg(millis(self.settings.margin)).arg(&channel);
            command.arg(&record.id.as_bytes()[..]);
            codec::put_record(record, command);
        });
        ScriptReply::read(value.await?)?.imported()
    }

    /// The epoch for a claim or an import.
    async fn epoch(&self, bucket: Bucket) -> Result<Arc<str>, StoreError> {
        self.loss_markers.to_claim_with(bucket, self.markers()).await
    }

    /// Decides about a call that found another epoch, or a closed marker.
    async fn retry_or_refuse(
        &self,
        bucket: Bucket,
        epoch: &str,
        mark: Marker,
    ) -> Result<(), StoreError> {
        match self.judge(bucket, epoch, mark).await? {
            // Happens once: a marker that is open and known is not reported as lost again.
            AfterLoss::Retry => Ok(()),
            AfterLoss::Refused(error) => Err(error),
        }
    }

    /// Sends a settlement or a resolution; `fill` adds the arguments that differ.
    async fn decide(
        &self,
        id: &RecordId,
        script: &Script,
        decision: Decision<'_>,
        fill: impl Fn(&mut Cmd),
    ) -> Result<Fenced<()>, StoreError> {
        let bucket = Bucket::of(id);
        let (record, epoch) = (self.names.record(id), self.loss_markers.known(bucket));
        let (mark, index) = (self.names.mark(bucket), self.names.index(bucket));
        let channel = self.names.channel(id);
        let value =
            self.connections.run(script, Replication::Checked { key: &record }, |command| {
                command.arg(3).arg(&record).arg(&mark).arg(&index).arg(&*epoch);
                fill(command);
                command.arg(decision.word).arg(millis(decision.retention.keep));
                command.arg(millis(decision.retention.tombstone)).arg(millis(self.settings.margin));
                command.arg(&channel).arg(&id.as_bytes()[..]).arg(self.touch());
                match decision.content {
                    DecisionContent::Outcome(outcome) => codec::put_outcome(outcome, command),
                    DecisionContent::Cause(cause) => drop(command.arg(cause.to_string())),
                    DecisionContent::None => {}
                }
            });
        let told = ScriptReply::read(value.await?)?.fenced(|_| Ok(()))?;
        self.or_missing(bucket, &epoch, told).await
    }

    /// Answers `Missing` if the record was lost together with its bucket, and closes the store.
    async fn or_missing<T>(
        &self,
        bucket: Bucket,
        epoch: &str,
        told: MaybeLost<Fenced<T>>,
    ) -> Result<Fenced<T>, StoreError> {
        match told {
            MaybeLost::Reply(fenced) => Ok(fenced),
            MaybeLost::Lost(mark) => {
                // The record is gone in any case.
                let _marked = self.judge(bucket, epoch, mark).await;
                Ok(Fenced::Missing)
            }
        }
    }

    async fn judge(
        &self,
        bucket: Bucket,
        epoch: &str,
        mark: Marker,
    ) -> Result<AfterLoss, StoreError> {
        self.loss_markers.judge(bucket, epoch, mark, self.markers()).await
    }

    /// 1 if scripts repeat a write that changes nothing, so that `WAIT` has a write to wait for.
    fn touch(&self) -> u8 {
        u8::from(self.connections.wait.is_some())
    }
}

/// A settlement as arguments of a script.
#[derive(Clone, Copy)]
struct Decision<'a> {
    word: &'static str,
    content: DecisionContent<'a>,
    retention: Retention,
}

/// The fields that a settlement writes beside the state.
#[derive(Clone, Copy)]
enum DecisionContent<'a> {
    Outcome(&'a Outcome),
    Cause(&'a UnknownCause),
    None,
}

impl<'a> Decision<'a> {
    fn of_holder(settlement: &'a Settlement, retention: Retention) -> Self {
        let (word, content) = match settlement {
            Settlement::Complete(outcome) => ("completed", DecisionContent::Outcome(outcome)),
            Settlement::Fail(outcome) => ("failed", DecisionContent::Outcome(outcome)),
            Settlement::Unknown(cause) => ("unknown", DecisionContent::Cause(cause)),
            Settlement::Release => ("released", DecisionContent::None),
        };
        Self { word, content, retention }
    }

    fn of_evidence(verdict: &'a Verdict, retention: Retention) -> Self {
        let (word, content) = match verdict {
            Verdict::Happened(outcome) => ("completed", DecisionContent::Outcome(outcome)),
            Verdict::DidNotHappen => ("released", DecisionContent::None),
            Verdict::StillUnknown => ("unknown", DecisionContent::None),
        };
        Self { word, content, retention }
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let bucket = Bucket::of(&request.id);
        loop {
            let epoch = self.epoch(bucket).await?;
            match self.claim_with_epoch(request, &epoch).await? {
                MaybeLost::Reply(claim) => return Ok(claim),
                MaybeLost::Lost(mark) => self.retry_or_refuse(bucket, &epoch, mark).await?,
            }
        }
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        let (bucket, fence) = (Bucket::of(&request.id), request.holder.fence);
        let (record, epoch) = (self.names.record(&request.id), self.loss_markers.known(bucket));
        let value = self.connections.run(&RENEW, Replication::Ignored, |command| {
            command.arg(2).arg(&record).arg(self.names.mark(bucket)).arg(&*epoch);
            command.arg(codec::hex(request.holder.owner.expose())).arg(fence.0);
            command.arg(millis(request.lease));
        });
        let told = ScriptReply::read(value.await?)?
            .fenced(|answer| Ok(Lease { fence, until: answer.time(1)? }))?;
        self.or_missing(bucket, &epoch, told).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<Fenced<()>, StoreError> {
        let decision = Decision::of_holder(&request.settlement, request.retention);
        let holder = request.holder;
        self.decide(&request.id, &SETTLE, decision, |command| {
            command.arg(codec::hex(holder.owner.expose())).arg(holder.fence.0);
        })
        .await
    }

    async fn changed(&self, id: &RecordId) {
        let waiter = self.notifications.wait_for(id);
        let settled = waiter.settled();
        waiter.subscribed().await;
        // It may have been settled before the subscription.
        match admin::get(self, id).await {
            Ok(Some(record)) if record.state.name() == onceward_core::StateName::Running => {
                settled.await;
            }
            _ => {}
        }
    }
}

#[async_trait]
impl StoreAdmin for RedisStore {
    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        admin::get(self, id).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        admin::list(self, query).await
    }

    async fn resolve(&self, request: &ResolveRequest) -> Result<Fenced<()>, StoreError> {
        let decision = Decision::of_evidence(&request.verdict, request.retention);
        self.decide(&request.id, &RESOLVE, decision, |command| {
            command.arg(request.fence.0).arg("");
        })
        .await
    }

    async fn invalidate(&self, request: &InvalidateRequest) -> Result<Fenced<()>, StoreError> {
        let bucket = Bucket::of(&request.id);
        let (record, epoch) = (self.names.record(&request.id), self.loss_markers.known(bucket));
        let mark = self.names.mark(bucket);
        let value =
            self.connections.run(&INVALIDATE, Replication::Checked { key: &record }, |command| {
                command.arg(2).arg(&record).arg(&mark).arg(&*epoch).arg(request.fence.0);
                command.arg(Tag::INVALIDATED.as_str()).arg(self.touch());
            });
        let told = ScriptReply::read(value.await?)?.fenced(|_| Ok(()))?;
        self.or_missing(bucket, &epoch, told).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, StoreError> {
        admin::purge(self, limit).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        admin::stats(self).await
    }

    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        let bucket = Bucket::of(&record.id);
        loop {
            let epoch = self.epoch(bucket).await?;
            match self.import_with_epoch(record, &epoch).await? {
                MaybeLost::Reply(imported) => return Ok(imported),
                MaybeLost::Lost(mark) => self.retry_or_refuse(bucket, &epoch, mark).await?,
            }
        }
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.watchdog.health().await
    }

    async fn accept_loss(&self) -> Result<LossAccepted, StoreError> {
        Ok(match Self::accept_loss(self).await? {
            0 => LossAccepted::NothingWasLost,
            _ => LossAccepted::Reopened,
        })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the address, which may contain a password.
        f.debug_struct("RedisStore").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A duration in milliseconds, limited to what scripts can represent.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(1 << 44)
}

fn check(settings: &Settings) -> Result<(), OpenError> {
    let wrong = |setting, problem| Err(OpenError::Setting { setting, problem });
    if settings.prefix.is_empty() || settings.prefix.contains(['{', '}']) {
        return wrong(
            "prefix",
            "must not be empty, and must have no braces: they would change the hash tag",
        );
    }
    if settings.connections == 0 {
        return wrong("connections", "must be one or more");
    }
    if settings.timeout.is_zero() {
        return wrong("timeout", "must not be zero");
    }
    match settings.wait {
        Some(wait) if wait.replicas == 0 => wrong("wait", "must be for one replica or more"),
        Some(wait) if wait.timeout >= settings.timeout => {
            wrong("wait", "must have a shorter timeout than a call")
        }
        _ => Ok(()),
    }
}

/// Installs a TLS provider, unless the process has chosen one.
pub(crate) fn choose_provider() {
    let _chosen_already = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
