//! A store on a Redis or Valkey server, with replicas or as a cluster.
//!
//! A record is a hash that `redis-cli` can show. Each call is one script that runs
//! [`machine`](onceward_core::machine) restated in Lua, on the server's clock, in one round trip:
//! the scripts are in `lua/`, one a transition. The fields, the settings and what is promised are
//! in `docs/stores.md`.
//!
//! **Best effort where servers fail over.** Replication is asynchronous: a replica that is promoted
//! may lack the last writes, a claim among them, and then its key is new. [`Settings::wait`] makes
//! that rarer and not impossible. What a single server with an append-only file acknowledged is
//! there after a crash, up to what its `appendfsync` says.

mod admin;
mod answer;
mod checks;
pub(crate) mod codec;
mod epochs;
mod error;
pub(crate) mod link;
mod names;
mod scripts;
mod settings;
mod watch;
mod watchdog;
mod witness;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onceward_core::{
    Claim, ClaimRequest, Fenced, Health, Imported, Lapsed, Lease, LossAccepted, Outcome, Page,
    Purged, Query, Record, RecordId, RenewRequest, ResolveRequest, Retention, SettleRequest,
    Settlement, Stats, Store, StoreAdmin, StoreError, Verdict,
};
use redis::Cmd;

use answer::{Answer, Mark, Told};
use epochs::{Epochs, Marks};
use link::{Address, Link, Replication};
use names::{BUCKETS, Bucket, Names};
use scripts::{CLAIM, IMPORT, RENEW, RESOLVE, SETTLE, Script};
use watch::Watch;
use watchdog::Watchdog;
use witness::Witness;

pub use checks::Unsafe;
pub use error::{OpenError, Quarantined, Unreplicated};
pub use settings::{Allow, OnEmpty, Settings, Tls, Wait};

/// Keeps records on a Redis or Valkey server, or on a cluster of them.
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
    link: Arc<Link>,
    names: Arc<Names>,
    epochs: Arc<Epochs>,
    watch: Watch,
    watchdog: Watchdog,
    settings: Settings,
    purge_from: AtomicU16,
}

impl RedisStore {
    /// Opens the store on a server: `redis://[user:password@]host[:port][/database]`, or
    /// `rediss://` for TLS. Looks whether the server is safe for records, and sets the store up
    /// if it is new.
    pub async fn open(url: &str, settings: Settings) -> Result<Self, OpenError> {
        Self::at(Address::Server(url.to_owned()), settings).await
    }

    /// Opens the store on a cluster, of which these nodes tell the others.
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
        let link = Link::new(&address, &settings).map_err(OpenError::Address)?;
        let urls = match &address {
            Address::Server(url) => vec![url.clone()],
            Address::Cluster(urls) => urls.clone(),
        };
        let servers = urls.iter().map(|url| link::client(url, &settings.tls));
        let servers: Vec<_> = servers.collect::<Result<_, _>>().map_err(OpenError::Address)?;
        let looked = checks::look(&link).await.map_err(OpenError::Unavailable)?;
        if let Some(fault) = checks::refused(&looked, settings.allow) {
            return Err(OpenError::Unsafe(fault));
        }
        let database = servers.first().map_or(0, link::database);
        let witness = Witness::new(&settings.prefix, database);
        let (link, names) = (Arc::new(link), Arc::new(Names::new(&settings.prefix)));
        let epochs = Arc::new(Epochs::open(&link, &names, &witness, &settings).await?);
        let watch = Watch::new(servers, Arc::clone(&names));
        let (shared, allow) = ((Arc::clone(&link), Arc::clone(&names)), settings.allow);
        let watchdog = Watchdog::start(shared.0, shared.1, Arc::clone(&epochs), allow, &looked);
        let purge_from = AtomicU16::new(0);
        Ok(Self { link, names, epochs, watch, watchdog, settings, purge_from })
    }

    /// Ends the quarantine after the server lost its data: an operator says that no client will
    /// send again what it sent before the loss, or that its effects may be repeated. Tells in
    /// how many of 1024 parts of the store claims were refused.
    ///
    /// Idempotent. After an error some parts may be open again.
    pub async fn accept_loss(&self) -> Result<usize, StoreError> {
        self.epochs.accept();
        let reopened = self.marks().reopen().await?;
        tracing::warn!(reopened, "an operator accepted that records were lost");
        Ok(reopened)
    }

    fn marks(&self) -> Marks<'_> {
        Marks { link: &self.link, names: &self.names }
    }

    /// All buckets, beginning with another one each time, so that none is always last.
    fn buckets_in_turn(&self) -> impl Iterator<Item = Bucket> + use<> {
        let first = self.purge_from.fetch_add(7, Ordering::Relaxed) % BUCKETS;
        (first..BUCKETS).chain(0..first).map(Bucket)
    }

    async fn claim_knowing(
        &self,
        request: &ClaimRequest,
        epoch: &str,
    ) -> Result<Told<Claim>, StoreError> {
        let (bucket, fingerprint) = (Bucket::of(&request.id), &request.fingerprint);
        let record = self.names.record(&request.id);
        let (mark, index) = (self.names.mark(bucket), self.names.index(bucket));
        let value = self.link.run(&CLAIM, Replication::Checked { key: &record }, |command| {
            command.arg(3).arg(&record).arg(&mark).arg(&index).arg(epoch);
            command.arg(codec::hex(request.owner.expose()));
            command.arg(codec::hex(fingerprint.digest())).arg(fingerprint.rules());
            command.arg(millis(request.lease));
            command.arg(u8::from(request.lapsed == Lapsed::Takeover));
            command.arg(request.operation.to_string());
            command.arg(&request.id.as_bytes()[..]).arg(self.touch());
            codec::put_fields(request, command);
        });
        Answer::read(value.await?)?.claim()
    }

    async fn import_knowing(
        &self,
        record: &Record,
        epoch: &str,
    ) -> Result<Told<Imported>, StoreError> {
        let (bucket, name) = (Bucket::of(&record.id), self.names.record(&record.id));
        let (mark, index) = (self.names.mark(bucket), self.names.index(bucket));
        let channel = self.names.channel(&record.id);
        let value = self.link.run(&IMPORT, Replication::Checked { key: &name }, |command| {
            command.arg(3).arg(&name).arg(&mark).arg(&index).arg(epoch);
            command.arg(millis(self.settings.margin)).arg(&channel);
            command.arg(&record.id.as_bytes()[..]);
            codec::put_record(record, command);
        });
        Answer::read(value.await?)?.imported()
    }

    /// The epoch to claim or to import with.
    async fn epoch(&self, bucket: Bucket) -> Result<Arc<str>, StoreError> {
        self.epochs.to_claim_with(bucket, self.marks()).await
    }

    /// After the answer that a bucket's mark is not the known one, or closed: whether to ask again.
    async fn go_on(&self, bucket: Bucket, epoch: &str, mark: Mark) -> Result<(), StoreError> {
        match self.judge(bucket, epoch, mark).await? {
            // Once: a mark that is open and known is not told as lost again.
            epochs::Verdict::Again => Ok(()),
            epochs::Verdict::Refused(error) => Err(error),
        }
    }

    /// Sends a settlement or evidence; `fill` adds what is special about either.
    async fn decide(
        &self,
        id: &RecordId,
        script: &Script,
        decision: Decision<'_>,
        fill: impl Fn(&mut Cmd),
    ) -> Result<Fenced<()>, StoreError> {
        let bucket = Bucket::of(id);
        let (record, epoch) = (self.names.record(id), self.epochs.known(bucket));
        let (mark, index) = (self.names.mark(bucket), self.names.index(bucket));
        let channel = self.names.channel(id);
        let value = self.link.run(script, Replication::Checked { key: &record }, |command| {
            command.arg(3).arg(&record).arg(&mark).arg(&index).arg(&*epoch);
            fill(command);
            command.arg(decision.word).arg(millis(decision.retention.keep));
            command.arg(millis(decision.retention.tombstone)).arg(millis(self.settings.margin));
            command.arg(&channel).arg(&id.as_bytes()[..]).arg(self.touch());
            if let Some(outcome) = decision.outcome {
                codec::put_outcome(outcome, command);
            }
        });
        let told = Answer::read(value.await?)?.fenced(|_| Ok(()))?;
        self.or_missing(bucket, &epoch, told).await
    }

    /// Whose record is gone with all others learns that it is missing, and the loss is marked.
    async fn or_missing<T>(
        &self,
        bucket: Bucket,
        epoch: &str,
        told: Told<Fenced<T>>,
    ) -> Result<Fenced<T>, StoreError> {
        match told {
            Told::Answer(fenced) => Ok(fenced),
            Told::Lost(mark) => {
                // Whether that works or not: the record is gone.
                let _marked = self.judge(bucket, epoch, mark).await;
                Ok(Fenced::Missing)
            }
        }
    }

    async fn judge(
        &self,
        bucket: Bucket,
        epoch: &str,
        mark: Mark,
    ) -> Result<epochs::Verdict, StoreError> {
        self.epochs.judge(bucket, epoch, mark, self.marks()).await
    }

    /// Whether scripts write again what stands already, so that `WAIT` has something to wait for.
    fn touch(&self) -> u8 {
        u8::from(self.link.wait.is_some())
    }
}

/// A settlement in the words of the scripts.
#[derive(Clone, Copy)]
struct Decision<'a> {
    word: &'static str,
    outcome: Option<&'a Outcome>,
    retention: Retention,
}

impl<'a> Decision<'a> {
    fn of_holder(settlement: &'a Settlement, retention: Retention) -> Self {
        let (word, outcome) = match settlement {
            Settlement::Complete(outcome) => ("completed", Some(outcome)),
            Settlement::Fail(outcome) => ("failed", Some(outcome)),
            Settlement::Unknown => ("unknown", None),
            Settlement::Release => ("released", None),
        };
        Self { word, outcome, retention }
    }

    fn of_evidence(verdict: &'a Verdict, retention: Retention) -> Self {
        let (word, outcome) = match verdict {
            Verdict::Happened(outcome) => ("completed", Some(outcome)),
            Verdict::DidNotHappen => ("released", None),
            Verdict::StillUnknown => ("unknown", None),
        };
        Self { word, outcome, retention }
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let bucket = Bucket::of(&request.id);
        loop {
            let epoch = self.epoch(bucket).await?;
            match self.claim_knowing(request, &epoch).await? {
                Told::Answer(claim) => return Ok(claim),
                Told::Lost(mark) => self.go_on(bucket, &epoch, mark).await?,
            }
        }
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Fenced<Lease>, StoreError> {
        let (bucket, fence) = (Bucket::of(&request.id), request.holder.fence);
        let (record, epoch) = (self.names.record(&request.id), self.epochs.known(bucket));
        let value = self.link.run(&RENEW, Replication::Ignored, |command| {
            command.arg(2).arg(&record).arg(self.names.mark(bucket)).arg(&*epoch);
            command.arg(codec::hex(request.holder.owner.expose())).arg(fence.0);
            command.arg(millis(request.lease));
        });
        let told = Answer::read(value.await?)?
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
        let watcher = self.watch.watch(id);
        let settled = watcher.settled();
        watcher.subscribed().await;
        // It may have been settled before anybody listened.
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
            match self.import_knowing(record, &epoch).await? {
                Told::Answer(imported) => return Ok(imported),
                Told::Lost(mark) => self.go_on(bucket, &epoch, mark).await?,
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
        // Not the address: it may hold a password.
        f.debug_struct("RedisStore").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What scripts count in. Longer than they can count is as long as they can.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(1 << 44)
}

fn check(settings: &Settings) -> Result<(), OpenError> {
    let wrong = |setting, problem| Err(OpenError::Setting { setting, problem });
    if settings.prefix.is_empty() || settings.prefix.contains(['{', '}']) {
        return wrong("prefix", "must not be empty, and have no braces: they mean something");
    }
    if settings.connections == 0 {
        return wrong("connections", "must be one or more");
    }
    if settings.timeout.is_zero() {
        return wrong("timeout", "must be longer than nothing");
    }
    match settings.wait {
        Some(wait) if wait.replicas == 0 => wrong("wait", "must be for one replica or more"),
        Some(wait) if wait.timeout >= settings.timeout => {
            wrong("wait", "must be for less time than a call may take")
        }
        _ => Ok(()),
    }
}

/// One provider for TLS, also where somebody else in the process has not chosen yet.
pub(crate) fn choose_provider() {
    let _chosen_already = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
