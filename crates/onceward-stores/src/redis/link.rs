//! The way to the server or the servers, and what is known of a call that failed on it.
//!
//! The driver has a manager of its own that connects again. It is not used: it cannot tell a call
//! that failed because there was no connection from one that was lost with it, and waits for the
//! first much longer than for the second.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use onceward_core::{Effect, StoreError, StoreErrorKind};
use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::{ClusterConnection, Connect};
use redis::cluster_routing::{
    MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr,
};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, IntoConnectionInfo, Pipeline, RedisError,
    RedisFuture, RedisResult, TlsCertificates, Value,
};
use tokio::time::{Instant, timeout_at};

use super::error::{
    Sent, Unreplicated, failed, is_unknown_script, silent, store_error, unexpected,
};
use super::scripts::Script;
use super::settings::{Settings, Tls, Wait};

/// Calls that may wait in a connection before callers do. More than the driver's 50, so that a
/// burst is written in few packets.
const PIPELINED_CALLS: usize = 1024;
/// How often the cluster client sends a call again by itself, redirections included: a slot that
/// moves twice, and a node that is gone in between.
const CLUSTER_RETRIES: u32 = 8;

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Server(String),
    /// Nodes to ask for the others.
    Cluster(Vec<String>),
}

/// Connections to a server or a cluster. Every call has a time limit of its own.
pub(crate) struct Link {
    lanes: Vec<Arc<Lane>>,
    next: AtomicUsize,
    timeout: std::time::Duration,
    pub(super) wait: Option<Wait>,
}

/// What a call is about: its key, by which a cluster finds the node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Replication<'a> {
    /// Nothing is waited for.
    Ignored,
    /// Replicas have to have it, if the settings say so.
    Checked { key: &'a str },
}

impl Link {
    pub(crate) fn new(address: &Address, settings: &Settings) -> RedisResult<Self> {
        let lane = |_| Lane::new(address, settings).map(Arc::new);
        Ok(Self {
            lanes: (0..settings.connections).map(lane).collect::<RedisResult<_>>()?,
            next: AtomicUsize::new(0),
            timeout: settings.timeout,
            wait: settings.wait,
        })
    }

    /// One command, one answer.
    pub(crate) async fn call(&self, command: &Cmd) -> Result<Value, StoreError> {
        self.send(Message::One(command)).await.map_err(Failure::into_error).and_then(only)
    }

    /// A script by its hash and, where the server does not know that, by its text. `fill` adds
    /// keys and arguments.
    pub(super) async fn run(
        &self,
        script: &Script,
        replication: Replication<'_>,
        fill: impl Fn(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let command = |verb: &str, code: &str| {
            let mut command = Cmd::new();
            command.arg(verb).arg(code);
            fill(&mut command);
            command
        };
        match self.invoke(&command("EVALSHA", &script.hash), replication).await {
            Err(Failure::Driver(error, sent)) if is_unknown_script(&error) => {
                let again = self.invoke(&command("EVAL", script.text), replication).await;
                again.map_err(|failure| failure.after(sent).into_error())
            }
            other => other.map_err(Failure::into_error),
        }
    }

    async fn invoke(&self, command: &Cmd, replication: Replication<'_>) -> Result<Value, Failure> {
        match (replication, self.wait) {
            (Replication::Checked { key }, Some(wait)) => {
                let waiting = waiting(command, wait);
                let message = Message::Two { pipeline: &waiting, key };
                checked(self.send(message).await?, wait)
            }
            (Replication::Ignored, _) | (_, None) => {
                self.send(Message::One(command)).await.and_then(|values| Ok(only(values)?))
            }
        }
    }

    /// A command to every server that takes writes, each with its name.
    pub(super) async fn call_all(&self, command: &Cmd) -> Result<Vec<(String, Value)>, StoreError> {
        let values = self.send(Message::All(command)).await.map_err(Failure::into_error)?;
        Ok(values.into_iter().flat_map(by_node).collect())
    }

    async fn send(&self, message: Message<'_>) -> Result<Vec<Value>, Failure> {
        let lane = &self.lanes[self.next.fetch_add(1, Ordering::Relaxed) % self.lanes.len()];
        lane.send(message, Instant::now() + self.timeout).await
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("lanes", &self.lanes.len()).finish_non_exhaustive()
    }
}

/// A command as it is sent.
#[derive(Clone, Copy)]
enum Message<'a> {
    One(&'a Cmd),
    /// A command and the `WAIT` for it, on one connection: that is what it waits for.
    Two {
        pipeline: &'a Pipeline,
        key: &'a str,
    },
    All(&'a Cmd),
}

/// Why there is no answer.
enum Failure {
    Driver(RedisError, Sent),
    Silence(Sent),
    Other(StoreError),
}

impl Failure {
    fn into_error(self) -> StoreError {
        match self {
            Self::Driver(error, sent) => failed(error, sent),
            Self::Silence(sent) => silent(sent),
            Self::Other(error) => error,
        }
    }

    /// The failure of a second sending.
    fn after(self, first: Sent) -> Self {
        match (first, self) {
            (Sent::Unanswered, Self::Driver(error, _)) => Self::Driver(error, first),
            (Sent::Unanswered, Self::Silence(_)) => Self::Silence(first),
            (_, same) => same,
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Other(error)
    }
}

/// One connection, made anew when it fails.
struct Lane {
    source: Source,
    current: Mutex<Current>,
    /// Held while connecting, so that many calls make one connection; with the last failure.
    connecting: tokio::sync::Mutex<Option<(Instant, RedisError)>>,
}

#[derive(Default)]
struct Current {
    /// Which connection it is: a late failure of an old one says nothing about the new one.
    number: u64,
    handle: Option<Handle>,
}

impl Lane {
    fn new(address: &Address, settings: &Settings) -> RedisResult<Self> {
        let source = Source::new(address, settings)?;
        Ok(Self { source, current: Mutex::default(), connecting: tokio::sync::Mutex::default() })
    }

    async fn send(
        self: &Arc<Self>,
        message: Message<'_>,
        until: Instant,
    ) -> Result<Vec<Value>, Failure> {
        let connected = timeout_at(until, self.connected()).await;
        // Nothing has left yet.
        let connected = connected.map_err(|_| Failure::Silence(Sent::Settled))?;
        let (number, mut handle) =
            connected.map_err(|error| Failure::Driver(error, Sent::Settled))?;
        let lost_before = LOST.load(Ordering::SeqCst);
        match timeout_at(until, handle.send(message)).await {
            Err(_) => {
                // Perhaps the server is slow, perhaps the way to it is gone: later calls take
                // a new one, and those under way keep this one.
                self.forget(number);
                Err(Failure::Silence(Sent::Unanswered))
            }
            Ok(Ok(values)) => Ok(values),
            Ok(Err(error)) => {
                if is_over(&error) {
                    self.forget(number);
                }
                Err(Failure::Driver(error, sent_since(lost_before)))
            }
        }
    }

    async fn connected(self: &Arc<Self>) -> RedisResult<(u64, Handle)> {
        if let Some(found) = self.current.lock().get() {
            return Ok(found);
        }
        // In a task of its own: whoever gives up waiting does not end it for the others.
        let (lane, since) = (Arc::clone(self), Instant::now());
        let connecting = tokio::spawn(async move { lane.connect(since).await });
        let stopped = || std::io::Error::other("the runtime is shutting down").into();
        connecting.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Connects, unless somebody else did while this one waited for its turn.
    async fn connect(&self, since: Instant) -> RedisResult<(u64, Handle)> {
        let mut last_failure = self.connecting.lock().await;
        if let Some(found) = self.current.lock().get() {
            return Ok(found);
        }
        if let Some((_, error)) = last_failure.as_ref().filter(|(at, _)| *at >= since) {
            return Err(error.clone());
        }
        match self.source.connect().await {
            Ok(handle) => Ok(self.current.lock().set(handle)),
            Err(error) => {
                *last_failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    fn forget(&self, number: u64) {
        let mut current = self.current.lock();
        if current.number == number {
            current.handle = None;
        }
    }
}

impl Current {
    fn get(&self) -> Option<(u64, Handle)> {
        Some((self.number, self.handle.clone()?))
    }

    fn set(&mut self, handle: Handle) -> (u64, Handle) {
        self.number += 1;
        self.handle = Some(handle.clone());
        (self.number, handle)
    }
}

/// Whether a connection is of no more use. A demoted primary refuses writes for good, and the
/// address may lead to its successor by now.
fn is_over(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_io_error() || error.code() == Some("READONLY")
}

/// Requests in this process, of all stores, that left for a server and were never answered.
///
/// The cluster client sends again by itself, and tells the last failure only. If none of all
/// requests was lost while a call went on, none of this call's was.
static LOST: AtomicU64 = AtomicU64::new(0);

fn sent_since(lost_before: u64) -> Sent {
    if LOST.load(Ordering::SeqCst) == lost_before { Sent::Settled } else { Sent::Unanswered }
}

enum Source {
    Server(Client, AsyncConnectionConfig),
    Cluster(ClusterClient),
}

impl Source {
    fn new(address: &Address, settings: &Settings) -> RedisResult<Self> {
        match address {
            Address::Server(url) => {
                // Our own limit is around it.
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(settings.timeout))
                    .set_response_timeout(None)
                    .set_pipeline_buffer_size(PIPELINED_CALLS);
                Ok(Self::Server(client(url, &settings.tls)?, config))
            }
            Address::Cluster(urls) => {
                let mut builder = ClusterClientBuilder::new(urls.iter().map(String::as_str))
                    .retries(CLUSTER_RETRIES)
                    // Nodes are connected to one after the other round: one that is silent must
                    // not take all the time that there is.
                    .connection_timeout(settings.timeout / 4)
                    .response_timeout(settings.timeout);
                if let Some(certificates) = certificates(&settings.tls) {
                    builder = builder.certs(certificates);
                }
                Ok(Self::Cluster(builder.build()?))
            }
        }
    }

    async fn connect(&self) -> RedisResult<Handle> {
        match self {
            Self::Server(client, config) => {
                let connected = client.get_multiplexed_async_connection_with_config(config).await;
                connected.map(|connection| Handle::Server(Counted(connection)))
            }
            Self::Cluster(client) => {
                client.get_async_generic_connection().await.map(Handle::Cluster)
            }
        }
    }
}

/// A client of one server, for connections of another kind too.
pub(super) fn client(url: &str, tls: &Tls) -> RedisResult<Client> {
    match certificates(tls) {
        Some(certificates) if url.starts_with("rediss:") => {
            Client::build_with_tls(url, certificates)
        }
        _ => Client::open(url),
    }
}

/// The number of the database that a client uses.
pub(super) fn database(client: &Client) -> i64 {
    client.get_connection_info().redis_settings().db()
}

fn certificates(tls: &Tls) -> Option<TlsCertificates> {
    let client_tls = tls.client.clone();
    let client_tls =
        client_tls.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    let some = client_tls.is_some() || tls.ca.is_some();
    some.then(|| TlsCertificates { client_tls, root_cert: tls.ca.clone() })
}

#[derive(Clone)]
enum Handle {
    Server(Counted),
    Cluster(ClusterConnection<Counted>),
}

impl Handle {
    async fn send(&mut self, message: Message<'_>) -> RedisResult<Vec<Value>> {
        match (self, message) {
            (Self::Server(it), Message::One(command) | Message::All(command)) => {
                one(it.req_packed_command(command).await)
            }
            (Self::Server(it), Message::Two { pipeline, .. }) => {
                it.req_packed_commands(pipeline, 0, 2).await
            }
            (Self::Cluster(it), Message::One(command)) => one(it.req_packed_command(command).await),
            (Self::Cluster(it), Message::Two { pipeline, key }) => {
                let route = Route::with_key(key, SlotAddr::Master);
                let route = SingleNodeRoutingInfo::SpecificNode(route);
                it.route_pipeline(pipeline.clone(), 0, 2, route).await
            }
            (Self::Cluster(it), Message::All(command)) => {
                let all = (MultipleNodeRoutingInfo::AllMasters, None);
                one(it.route_command(command.clone(), RoutingInfo::MultiNode(all)).await)
            }
        }
    }
}

fn one(answer: RedisResult<Value>) -> RedisResult<Vec<Value>> {
    Ok(vec![answer?.extract_error()?])
}

/// A connection that counts the requests that were not answered.
#[derive(Clone)]
struct Counted(MultiplexedConnection);

impl Connect for Counted {
    fn connect_with_config<'a, T>(info: T, config: AsyncConnectionConfig) -> RedisFuture<'a, Self>
    where
        T: IntoConnectionInfo + Send + 'a,
    {
        let config = config.set_pipeline_buffer_size(PIPELINED_CALLS);
        let connecting = MultiplexedConnection::connect_with_config(info, config);
        Box::pin(async move { connecting.await.map(Self) })
    }
}

impl ConnectionLike for Counted {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move { counted(self.0.req_packed_command(cmd).await) })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move { counted(self.0.req_packed_commands(pipeline, offset, count).await) })
    }

    fn get_db(&self) -> i64 {
        self.0.get_db()
    }
}

/// Whatever is not an answer of the server is a request of which nobody knows.
fn counted<T>(answer: RedisResult<T>) -> RedisResult<T> {
    if let Err(error) = &answer
        && error.code().is_none()
    {
        LOST.fetch_add(1, Ordering::SeqCst);
    }
    answer
}

fn only(mut values: Vec<Value>) -> Result<Value, StoreError> {
    values.pop().ok_or_else(|| unexpected("no answer"))
}

fn waiting(command: &Cmd, wait: Wait) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.add_command(command.clone());
    // Zero would be for ever.
    let timeout = u64::try_from(wait.timeout.as_millis()).unwrap_or(u64::MAX).max(1);
    pipeline.cmd("WAIT").arg(wait.replicas).arg(timeout);
    pipeline
}

/// The answer of a script, if replicas have what it wrote.
fn checked(values: Vec<Value>, wait: Wait) -> Result<Value, Failure> {
    let [answer, acknowledged]: [Value; 2] =
        values.try_into().map_err(|_| unexpected("not two answers"))?;
    let answer = answer.extract_error().map_err(|it| Failure::Driver(it, Sent::Settled))?;
    if !has_effect(&answer) {
        return Ok(answer);
    }
    // From here on it is applied.
    let acknowledged = acknowledged.extract_error();
    let acknowledged = acknowledged.map_err(|it| Failure::Driver(it, Sent::Unanswered))?;
    let Value::Int(acknowledged) = acknowledged else {
        return Err(unexpected("WAIT says no number").into());
    };
    let (acknowledged, wanted) = (u32::try_from(acknowledged).unwrap_or(0), wait.replicas);
    if acknowledged >= wanted {
        return Ok(answer);
    }
    let short = store_error(StoreErrorKind::Unavailable, Effect::MayHaveBeenApplied);
    Err(short.caused_by(Unreplicated { acknowledged, wanted }).into())
}

/// Whether somebody will act on the answer of a script because of what it wrote. Others would only
/// be kept from a replay by replicas that are behind.
fn has_effect(answer: &Value) -> bool {
    let Value::Array(words) = answer else { return true };
    let word = |it: &Value| matches!(it, Value::BulkString(word) if EFFECTS.contains(&&word[..]));
    words.first().is_none_or(word)
}

const EFFECTS: [&[u8]; 3] = [b"granted", b"applied", b"unknown"];

/// The answers of all nodes; a single server has no name.
fn by_node(value: Value) -> Vec<(String, Value)> {
    let name = |value| redis::from_redis_value::<String>(value).unwrap_or_default();
    match value {
        Value::Map(pairs) => pairs.into_iter().map(|(node, it)| (name(node), it)).collect(),
        value => vec![(String::new(), value)],
    }
}
