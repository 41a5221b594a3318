//! Claims that an engine sends for callers who hold the grant themselves, such as workers of the
//! claims API.

use std::time::Duration;

use crate::common::*;
use onceward_core::{Claim, ClaimRequest, StateName, StoreError, SystemAmbient, TokenSource};
use onceward_testkit::faulty::{Call, Fault};
use tokio::time::{sleep, timeout};

/// Sends a claim of the key `k`, and lets the caller go away after a second.
async fn send_for_a_second(bench: &Bench, token: TokenSource) -> Option<Result<Claim, StoreError>> {
    let engine = bench.engine();
    let (policy, identity) = (engine.policy(), engine.identity());
    let request =
        ClaimRequest::for_intent(id("k"), &intent("k"), policy, identity, &SystemAmbient::new());
    timeout(Duration::from_secs(1), engine.send_claim(request, token)).await.ok()
}

#[tokio::test(start_paused = true)]
async fn a_grant_stays_with_the_caller_and_is_sent_again_while_unclear() {
    for token in [TokenSource::Caller, TokenSource::Engine] {
        let bench = Bench::new();
        bench.store.on_next(2, Call::Claim, Fault::LoseReply);
        let claim = send_for_a_second(&bench, token).await.unwrap().unwrap();
        assert!(matches!(claim, Claim::Granted { attempt: 1, .. }), "{claim:?}");
        sleep(Duration::from_secs(2)).await;
        assert_eq!(bench.standing("k").await, Some(StateName::Running), "{token:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_caller_went_away_is_withdrawn_unless_it_can_be_sent_again() {
    for (token, standing) in
        [(TokenSource::Engine, StateName::Released), (TokenSource::Caller, StateName::Running)]
    {
        let bench = Bench::new();
        bench.store.on_every(Call::Claim, Fault::LoseReply);
        assert!(send_for_a_second(&bench, token).await.is_none());
        bench.store.heal();
        sleep(Duration::from_secs(2)).await;
        assert_eq!(bench.standing("k").await, Some(standing), "{token:?}");
    }
}
