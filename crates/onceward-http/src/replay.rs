//! Answering from what was stored.

use bytes::Bytes;
use futures_util::FutureExt;
use http::Response;
use onceward_core::{Content, Outcome, Replay};

use crate::body::{Body, Whole};
use crate::coding::Accept;
use crate::layer::Shared;
use crate::problem::{Code, Problem};
use crate::reply::{self, Reply};
use crate::rules::ReplayRules;
use crate::speak::Reference;

impl Shared {
    /// The response that a stored outcome is, in a coding that the client accepts.
    pub(crate) async fn replay<R>(
        &self,
        replay: Replay,
        rules: &ReplayRules,
        accept: &Accept,
    ) -> Result<Response<Body<R>>, Problem> {
        let Replay { operation, outcome, .. } = replay;
        let unreadable = Problem::new(Code::NotReplayable).operation(operation);
        let Some(reply) = reply::of(&outcome) else { return Err(unreadable) };
        match outcome.content {
            Content::Whole => Ok(reply.into_replay(rules, accept).map(Whole::into_body)),
            Content::Omitted => Err(unreadable.original(reply.status, reply.location())),
            Content::Reference => match self.rebuilt(&reply, &outcome, rules).boxed().await {
                Some(response) => Ok(response.map(Body::whole)),
                None => Err(unreadable.original(reply.status, reply.location())),
            },
        }
    }

    /// Makes a reply again from its reference.
    async fn rebuilt(
        &self,
        reply: &Reply,
        outcome: &Outcome,
        rules: &ReplayRules,
    ) -> Option<Response<Bytes>> {
        let (rebuild, resource) = (self.rebuild.as_ref()?, outcome.resource.as_ref()?);
        let resource = (**resource).clone();
        let (status, headers) = (reply.status, reply.headers.clone());
        let rebuilt = rebuild(Reference { resource, status, headers }).await;
        let mut response = rebuilt
            .inspect_err(|error| tracing::warn!(%error, "a reply could not be made again"))
            .ok()?;
        reply::mark(response.headers_mut(), rules);
        Some(response)
    }
}
