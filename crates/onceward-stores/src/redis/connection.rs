//! Connections to a server or a cluster, and what a failed call says about its effect.
//!
//! The driver's own connection manager is not used. It cannot tell a call that failed for want of a
//! connection from one that was lost with its connection, and it waits much longer for the first
//! than for the second.

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

/// Calls in a connection's queue before callers wait. More than the driver's 50, so that a burst is
/// written in few packets.
const PIPELINED_CALLS: usize = 1024;
/// How often the cluster client repeats a call, redirections included: enough for a slot that moves
/// twice while a node is gone.
const CLUSTER_RETRIES: u32 = 8;

/// The address of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Server(String),
    /// Some nodes, which name the others.
    Cluster(Vec<String>),
}

/// Connections to a server or a cluster. Each call has a time limit.
pub(crate) struct Connections {
    all: Vec<Arc<Connection>>,
    next: AtomicUsize,
    timeout: std::time::Duration,
    pub(super) wait: Option<Wait>,
}

/// Whether a call waits for replicas.
#[derive(Debug, Clone, Copy)]
pub(super) enum Replication<'a> {
    /// It does not.
    Ignored,
    /// Replicas must have the write, if the settings say so. A cluster finds the node by the key.
    Checked { key: &'a str },
}

impl Connections {
    pub(crate) fn new(address: &Address, settings: &Settings) -> RedisResult<Self> {
        let connection = |_| Connection::new(address, settings).map(Arc::new);
        Ok(Self {
            all: (0..settings.connections).map(connection).collect::<RedisResult<_>>()?,
            next: AtomicUsize::new(0),
            timeout: settings.timeout,
            wait: settings.wait,
        })
    }

    /// Sends one command and returns its reply.
    pub(crate) async fn call(&self, command: &Cmd) -> Result<Value, StoreError> {
        self.send(Message::One(command)).await.map_err(CallFailure::into_error).and_then(only)
    }

    /// Runs a script by its hash, or by its text if the server does not know the hash. `fill` adds
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
            Err(CallFailure::Driver(error, sent)) if is_unknown_script(&error) => {
                let again = self.invoke(&command("EVAL", script.text), replication).await;
                again.map_err(|failure| failure.after(sent).into_error())
            }
            other => other.map_err(CallFailure::into_error),
        }
    }

    async fn invoke(
        &self,
        command: &Cmd,
        replication: Replication<'_>,
    ) -> Result<Value, CallFailure> {
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

    /// Sends a command to every server that takes writes. Returns the replies with the servers'
    /// names.
    pub(super) async fn call_all(&self, command: &Cmd) -> Result<Vec<(String, Value)>, StoreError> {
        let values = self.send(Message::All(command)).await.map_err(CallFailure::into_error)?;
        Ok(values.into_iter().flat_map(by_node).collect())
    }

    async fn send(&self, message: Message<'_>) -> Result<Vec<Value>, CallFailure> {
        let connection = &self.all[self.next.fetch_add(1, Ordering::Relaxed) % self.all.len()];
        connection.send(message, Instant::now() + self.timeout).await
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("all", &self.all.len()).finish_non_exhaustive()
    }
}

/// A command to send.
#[derive(Clone, Copy)]
enum Message<'a> {
    One(&'a Cmd),
    /// A command and its `WAIT`, on one connection, as `WAIT` is about that connection's writes.
    Two {
        pipeline: &'a Pipeline,
        key: &'a str,
    },
    All(&'a Cmd),
}

/// Why a call has no reply.
enum CallFailure {
    Driver(RedisError, Sent),
    Silence(Sent),
    Other(StoreError),
}

impl CallFailure {
    fn into_error(self) -> StoreError {
        match self {
            Self::Driver(error, sent) => failed(error, sent),
            Self::Silence(sent) => silent(sent),
            Self::Other(error) => error,
        }
    }

    /// The failure of a second attempt, given how the first one ended.
    fn after(self, first: Sent) -> Self {
        match (first, self) {
            (Sent::Unanswered, Self::Driver(error, _)) => Self::Driver(error, first),
            (Sent::Unanswered, Self::Silence(_)) => Self::Silence(first),
            (_, same) => same,
        }
    }
}

impl From<StoreError> for CallFailure {
    fn from(error: StoreError) -> Self {
        Self::Other(error)
    }
}

/// One connection, replaced when it fails.
struct Connection {
    source: Source,
    current: Mutex<Current>,
    /// Held while connecting, so that many calls make one connection. Holds the last failure.
    connecting: tokio::sync::Mutex<Option<(Instant, RedisError)>>,
}

#[derive(Default)]
struct Current {
    /// Number of the connection: a late failure of an earlier one does not concern the current one.
    number: u64,
    handle: Option<Handle>,
}

impl Connection {
    fn new(address: &Address, settings: &Settings) -> RedisResult<Self> {
        let source = Source::new(address, settings)?;
        Ok(Self { source, current: Mutex::default(), connecting: tokio::sync::Mutex::default() })
    }

    async fn send(
        self: &Arc<Self>,
        message: Message<'_>,
        until: Instant,
    ) -> Result<Vec<Value>, CallFailure> {
        let connected = timeout_at(until, self.connected()).await;
        // Nothing has been sent yet.
        let connected = connected.map_err(|_| CallFailure::Silence(Sent::Settled))?;
        let (number, mut handle) =
            connected.map_err(|error| CallFailure::Driver(error, Sent::Settled))?;
        let lost_before = LOST.load(Ordering::SeqCst);
        match timeout_at(until, handle.send(message)).await {
            Err(_) => {
                // The server may be slow, or the connection dead: later calls use a new connection,
                // and calls in flight keep this one.
                self.forget(number);
                Err(CallFailure::Silence(Sent::Unanswered))
            }
            Ok(Ok(values)) => Ok(values),
            Ok(Err(error)) => {
                if is_over(&error) {
                    self.forget(number);
                }
                Err(CallFailure::Driver(error, sent_since(lost_before)))
            }
        }
    }

    async fn connected(self: &Arc<Self>) -> RedisResult<(u64, Handle)> {
        if let Some(found) = self.current.lock().get() {
            return Ok(found);
        }
        // In a task of its own, so that a caller that gives up does not cancel it for the others.
        let (connection, since) = (Arc::clone(self), Instant::now());
        let connecting = tokio::spawn(async move { connection.connect(since).await });
        let stopped = || std::io::Error::other("the runtime is shutting down").into();
        connecting.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Connects, unless another call did while this one waited for the lock.
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

/// True if a connection is of no more use. A demoted primary refuses all writes, and the address
/// may lead to its successor by now.
fn is_over(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.is_io_error() || error.code() == Some("READONLY")
}

/// Requests of all stores of this process that were sent and never answered.
///
/// The cluster client repeats calls by itself and reports only the last failure. If no request at
/// all was lost during a call, then none of that call was.
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
                // Calls have their own time limit.
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(settings.timeout))
                    .set_response_timeout(None)
                    .set_pipeline_buffer_size(PIPELINED_CALLS);
                Ok(Self::Server(client(url, &settings.tls)?, config))
            }
            Address::Cluster(urls) => {
                let mut builder = ClusterClientBuilder::new(urls.iter().map(String::as_str))
                    .retries(CLUSTER_RETRIES)
                    // Nodes are connected one after the other: a silent one must not use up all the
                    // time.
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

/// A client for one server, for other kinds of connections too.
pub(super) fn client(url: &str, tls: &Tls) -> RedisResult<Client> {
    match certificates(tls) {
        Some(certificates) if url.starts_with("rediss:") => {
            Client::build_with_tls(url, certificates)
        }
        _ => Client::open(url),
    }
}

/// The number of the client's database.
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

/// A connection that counts requests without a reply.
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

/// Every error that is not a server's reply is a lost request.
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
    // Zero would wait for ever.
    let timeout = u64::try_from(wait.timeout.as_millis()).unwrap_or(u64::MAX).max(1);
    pipeline.cmd("WAIT").arg(wait.replicas).arg(timeout);
    pipeline
}

/// Returns a script's reply if enough replicas have what it wrote.
fn checked(values: Vec<Value>, wait: Wait) -> Result<Value, CallFailure> {
    let [answer, acknowledged]: [Value; 2] =
        values.try_into().map_err(|_| unexpected("not two answers"))?;
    let answer = answer.extract_error().map_err(|it| CallFailure::Driver(it, Sent::Settled))?;
    if !has_effect(&answer) {
        return Ok(answer);
    }
    // From here on the write is applied.
    let acknowledged = acknowledged.extract_error();
    let acknowledged = acknowledged.map_err(|it| CallFailure::Driver(it, Sent::Unanswered))?;
    let Value::Int(acknowledged) = acknowledged else {
        return Err(unexpected("a reply of WAIT that is no number").into());
    };
    let (acknowledged, wanted) = (u32::try_from(acknowledged).unwrap_or(0), wait.replicas);
    if acknowledged >= wanted {
        return Ok(answer);
    }
    let short = store_error(StoreErrorKind::Unavailable, Effect::MayHaveBeenApplied);
    Err(short.caused_by(Unreplicated { acknowledged, wanted }).into())
}

/// True if the caller acts on what the script wrote. Other replies, such as replays, need not wait
/// for replicas.
fn has_effect(answer: &Value) -> bool {
    let Value::Array(words) = answer else { return true };
    let word = |it: &Value| matches!(it, Value::BulkString(word) if EFFECTS.contains(&&word[..]));
    words.first().is_none_or(word)
}

const EFFECTS: [&[u8]; 3] = [b"granted", b"applied", b"unknown"];

/// The replies of all nodes with their names; a single server has no name.
fn by_node(value: Value) -> Vec<(String, Value)> {
    let name = |value| redis::from_redis_value::<String>(value).unwrap_or_default();
    match value {
        Value::Map(pairs) => pairs.into_iter().map(|(node, it)| (name(node), it)).collect(),
        value => vec![(String::new(), value)],
    }
}
