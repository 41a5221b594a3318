//! Compares `docs/state-machine.md` with `machine.rs`.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use onceward_core::machine::{self, Next, Step};
use onceward_core::{
    Claim, ClaimRequest, Ended, Fence, Fingerprint, Holder, InvalidateRequest, Lapsed, OperationId,
    Outcome, OwnerToken, Record, RecordId, RenewRequest, Replay, ResolveRequest, Retention, Scope,
    SettleRequest, Settlement, Sketch, Tag, Timestamp, UnknownCause, Unpurged, Verdict,
};

/// Old state, event, new state.
type Edge = (String, &'static str, String);

const LEASE: Duration = Duration::from_secs(1);
const START: Timestamp = Timestamp::from_millis(1_000_000);
const ID: RecordId = RecordId::from_bytes([7; 32]);

const WORDS: [&str; 10] = [
    "claim",
    "renew",
    "complete",
    "fail",
    "unknown",
    "release",
    "happened",
    "did not happen",
    "invalidate",
    "sweep",
];

/// Every edge that the drawing shows: `A --> B: word (condition), word`.
fn drawn() -> BTreeSet<Edge> {
    let drawing = include_str!("../../../../docs/state-machine.md");
    let arrows = drawing.lines().filter_map(|line| line.trim().split_once(" --> "));
    let mut edges = BTreeSet::new();
    for (from, rest) in arrows {
        let (to, label) = rest.split_once(": ").expect("an arrow has a label");
        for word in label.split(", ") {
            let word = word.split(" (").next().unwrap();
            let known = WORDS.iter().find(|it| **it == word);
            let word = *known.unwrap_or_else(|| panic!("{word:?} is not an event"));
            edges.insert((from.to_owned(), word, to.to_owned()));
        }
    }
    edges
}

/// Every edge in the code: tries every event on every record that a few steps can reach, at every
/// interesting time.
fn coded() -> BTreeSet<Edge> {
    let mut edges = BTreeSet::new();
    let mut seen = HashSet::new();
    let mut frontier = vec![(None, START)];
    for _ in 0..4 {
        let mut reached = Vec::new();
        for (record, at) in frontier {
            for later in [0, 2, 11, 32].map(|seconds| at + Duration::from_secs(seconds)) {
                for (word, next) in events(record.as_ref(), later) {
                    let Some(next) = next.written(record.as_ref()) else { continue };
                    let next = next.map(|next| *next);
                    edges.insert((name(record.as_ref()), word, name(next.as_ref())));
                    if seen.insert(format!("{next:?}")) {
                        reached.push((next, later));
                    }
                }
            }
        }
        frontier = reached;
    }
    edges
}

fn name(record: Option<&Record>) -> String {
    record.map_or("Absent".to_owned(), |record| record.state.name().to_string())
}

/// The next state of a record after every event.
fn events(record: Option<&Record>, now: Timestamp) -> Vec<(&'static str, Next)> {
    let holder =
        record.map_or(Holder { owner: OwnerToken::from_bytes([0; 16]), fence: Fence(0) }, |it| {
            Holder { owner: it.owner, fence: it.fence }
        });
    let renewal = RenewRequest { id: ID, holder, lease: LEASE };
    let mut nexts = vec![("renew", machine::renew(record, &renewal, now).next)];
    for lapsed in [Lapsed::Unknown, Lapsed::Takeover] {
        let request = request(lapsed, now);
        let step = machine::claim(record, &request, Fence(0), now);
        recalls_what_a_claim_says(record, &request, now, &step);
        nexts.push(("claim", step.next));
    }
    for tombstone in [Duration::ZERO, LEASE * 20] {
        let retention = Retention { keep: LEASE * 10, tombstone };
        for (word, settlement) in settlements() {
            let request = SettleRequest { id: ID, holder, settlement, retention };
            nexts.push((word, machine::settle(record, &request, now).next));
        }
        for (word, verdict) in verdicts() {
            let request = ResolveRequest { id: ID, fence: holder.fence, verdict, retention };
            nexts.push((word, machine::resolve(record, &request, now).next));
        }
    }
    let correction = InvalidateRequest { id: ID, fence: holder.fence };
    nexts.push(("invalidate", machine::invalidate(record, &correction, now).next));
    if let Some(record) = record {
        nexts.push(("sweep", machine::sweep(record, now)));
    }
    nexts
}

/// Checks that `recall` answers like `claim` for settled records, and nothing for others.
fn recalls_what_a_claim_says(
    record: Option<&Record>,
    request: &ClaimRequest,
    now: Timestamp,
    step: &Step<Claim>,
) {
    let recall = |fingerprint| record.and_then(|it| machine::recall(it, fingerprint, now));
    let said =
        recall(&request.fingerprint).map(|Replay { operation, ended, outcome }| match ended {
            Ended::Completed => Claim::Completed { operation, outcome },
            Ended::Failed => Claim::Failed { operation, outcome },
        });
    match &step.answer {
        settled @ (Claim::Completed { .. } | Claim::Failed { .. }) => {
            assert_eq!(said.as_ref(), Some(settled));
            assert_eq!(step.next, Next::Same);
        }
        _ => assert_eq!(said, None),
    }
    assert_eq!(recall(&Fingerprint::of_parts(&[b"another request"])), None);
}

fn request(lapsed: Lapsed, now: Timestamp) -> ClaimRequest {
    ClaimRequest {
        id: ID,
        owner: OwnerToken::from_bytes(u128::from(now.as_millis()).to_be_bytes()),
        operation: OperationId::from(uuid::Uuid::nil()),
        scope: Scope::new("tenant", "caller", "operation").unwrap(),
        key: None,
        fingerprint: Fingerprint::of_parts(&[]),
        sketch: Sketch::default(),
        path: None,
        lease: LEASE,
        lapsed,
        unpurged: Unpurged::Replace,
    }
}

fn settlements() -> [(&'static str, Settlement); 4] {
    let outcome = Outcome::whole(Tag::JSON, "{}");
    [
        ("complete", Settlement::Complete(outcome.clone())),
        ("fail", Settlement::Fail(outcome)),
        ("unknown", Settlement::Unknown(UnknownCause::Reported(None))),
        ("release", Settlement::Release),
    ]
}

fn verdicts() -> [(&'static str, Verdict); 2] {
    [
        ("happened", Verdict::Happened(Outcome::whole(Tag::JSON, "{}"))),
        ("did not happen", Verdict::DidNotHappen),
    ]
}

#[test]
fn the_drawing_shows_every_edge_and_no_other() {
    let (drawn, coded) = (drawn(), coded());
    let undrawn: Vec<_> = coded.difference(&drawn).collect();
    let illegal: Vec<_> = drawn.difference(&coded).collect();
    assert!(undrawn.is_empty(), "in machine.rs and not drawn: {undrawn:#?}");
    assert!(illegal.is_empty(), "drawn and not in machine.rs: {illegal:#?}");
    assert!(coded.len() > 20, "the walk has seen the machine");
}
