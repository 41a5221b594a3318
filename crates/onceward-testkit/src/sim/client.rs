//! A client: retries with the same key until it has an answer.

use std::sync::Arc;

use onceward_core::{Fingerprint, Identity, Intent, Key, Scope};
use tokio::time::{sleep, timeout};

use super::node::Request;
use super::world::World;
use crate::history::{Answer, Event};

/// Most attempts a client makes at one intent.
const ATTEMPTS_MAX: usize = 12;

/// Sends its intents, one after the other.
pub(super) async fn run(world: Arc<World>) {
    for _ in 0..world.plan.intents {
        sleep(world.dice.millis(0..world.lease_ms())).await;
        let intent = intent(&world);
        for attempt in 0..ATTEMPTS_MAX {
            match send(&world, &intent).await {
                // Usually the end; sometimes it retries although it has its answer.
                Some(Answer::First { .. } | Answer::Replay(_)) if world.dice.chance(0.7) => break,
                Some(Answer::Mismatch | Answer::Expired) => break,
                Some(Answer::Unknown) if attempt > 4 => break,
                _ => {}
            }
            sleep(world.dice.millis(1..world.lease_ms())).await;
        }
    }
}

/// An intent under one of the shared keys. In one of ten the request differs.
fn intent(world: &World) -> Intent {
    let key = world.dice.index(world.plan.keys);
    let version = u8::from(world.dice.chance(0.1));
    let (scope, name) = (
        Scope::new("tenant", "caller", "operation").expect("a valid scope"),
        Key::new(format!("key-{key}")).expect("a valid key"),
    );
    Intent::new(scope, name, Fingerprint::of_parts(&[&[version]]))
}

/// Sends one attempt. `None` if no answer came in time.
async fn send(world: &Arc<World>, intent: &Intent) -> Option<Answer> {
    let record = Identity::unkeyed().record_id(&intent.scope, &intent.key);
    let attempt = world.next_attempt();
    world.history.push(Event::Sent { attempt, record });
    world.travel().await;
    if world.strikes("request to a node lost", world.plan.rates.lost) {
        return None;
    }
    let node = world.some_node()?;
    let answer = node.accept(Request { attempt, record, intent: intent.clone() });
    let patience = world.dice.millis(1..world.lease_ms() * 4);
    let Ok(Ok(answer)) = timeout(patience, answer).await else {
        world.count("client hung up");
        return None;
    };
    world.travel().await;
    if world.strikes("answer to a client lost", world.plan.rates.lost) {
        return None;
    }
    Some(answer)
}
