//! Responses to retries, from stored outcomes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::Response;
use onceward_core::{BoxError, Content, Outcome, Replay};

use super::codec::{self, StoredReply, stored_reply};
use crate::body::{Accept, Body, Whole};
use crate::handler::SensitiveReply;
use crate::problem::{Code, Problem};
use crate::rules::ReplayRules;

/// Makes the response of a sensitive reply again. Set by
/// [`LayerBuilder::rebuild`](crate::LayerBuilder::rebuild).
pub(crate) type Rebuild = Arc<dyn Fn(SensitiveReply) -> Rebuilding + Send + Sync>;
pub(crate) type Rebuilding =
    Pin<Box<dyn Future<Output = Result<Response<Bytes>, BoxError>> + Send>>;

/// The detail for a response that an operator has invalidated.
const INVALIDATED: &str = "The stored response was invalidated by an operator, because what the \
    operation did has been corrected since. It will not be executed again with this key. Look the \
    resource up.";

/// Returns the response of a stored outcome, in a coding that the client accepts.
pub(crate) async fn replay<R>(
    replay: Replay,
    rules: &ReplayRules,
    accept: &Accept,
    rebuild: Option<&Rebuild>,
) -> Result<Response<Body<R>>, Problem> {
    let Replay { operation, outcome, .. } = replay;
    let not_replayable = Problem::new(Code::NotReplayable).operation(operation);
    if outcome.is_invalidated() {
        return Err(not_replayable.detail(INVALIDATED));
    }
    let Some(reply) = stored_reply(&outcome) else { return Err(not_replayable) };
    match outcome.content {
        Content::Whole => Ok(reply.into_replay(rules, accept).map(Whole::into_body)),
        Content::Omitted => Err(not_replayable.original(reply.status, reply.location())),
        Content::Reference => match rebuilt(&reply, &outcome, rules, rebuild).boxed().await {
            Some(response) => Ok(response.map(Body::whole)),
            None => Err(not_replayable.original(reply.status, reply.location())),
        },
    }
}

/// Makes a sensitive reply again from its resource.
async fn rebuilt(
    reply: &StoredReply,
    outcome: &Outcome,
    rules: &ReplayRules,
    rebuild: Option<&Rebuild>,
) -> Option<Response<Bytes>> {
    let resource = (**outcome.resource.as_ref()?).clone();
    let (status, headers) = (reply.status, reply.headers.clone());
    let rebuilt = rebuild?(SensitiveReply { resource, status, headers }).await;
    let mut response =
        rebuilt.inspect_err(|error| tracing::warn!(%error, "a reply could not be rebuilt")).ok()?;
    codec::mark(response.headers_mut(), rules);
    Some(response)
}
