//! Tests of the suite itself: it passes a correct server, fails one without idempotency, and finds
//! each planted bug by the case that names it.

mod guard;
mod meaning;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use onceward_core::{Expiry as PolicyExpiry, FullStore, MemoryStore, OnLapse, Policy};
use onceward_testkit::clock::ManualClock;
use onceward_testkit::faulty::FaultyStore;
use onceward_testkit::http::fixture::Fixture;
use onceward_testkit::http::server::{MortalServer, Server};
use onceward_testkit::http::{
    Expectations, Expiry, Flood, InProgress, KeyRule, KeySyntax, Lapse, Line, Mismatch, Outcome,
    Protocol, ReplayStatus, Report, ServerErrors, StoreControls, Target, run,
};

use guard::{Bug, Guard, Settings};

/// A guard and its second node, on one store with faults and a clock that is moved.
struct Guarded {
    target: Target,
    _lives: Arc<MortalServer>,
    _peer: Server,
}

async fn guarded(protocol: Protocol, settings: Settings) -> Guarded {
    let clock = ManualClock::new();
    let of_store = clock.clone();
    let store = Arc::new(FaultyStore::new(move || {
        Arc::new(MemoryStore::with(Default::default(), Arc::new(of_store.clone())))
    }));
    let limits = settings.clone();
    let guard = Guard::new(Arc::clone(&store) as Arc<dyn FullStore>, settings.clone());
    let (peer, lives) = (guard.clone(), guard.clone());
    let peer = Server::start(protocol, move |request| peer.clone().call(request)).unwrap();
    let of_lives = Arc::clone(&store);
    let lives = MortalServer::start(protocol, move || {
        let life = match settings.bug {
            Some(Bug::CrashForgets) => lives.again(Arc::new(MemoryStore::new())),
            _ => lives.again(Arc::clone(&of_lives) as Arc<dyn FullStore>),
        };
        move |request| life.clone().call(request)
    });
    let lives = Arc::new(lives.unwrap());
    let dying = Arc::clone(&lives);
    let controls = StoreControls::new(store, clock).crashing_by(move || {
        let dying = Arc::clone(&dying);
        async move { dying.crash().await }
    });
    let mut target = Target::onceward(lives.base()).over(protocol).controlled(Arc::new(controls));
    target.peer = Some(peer.base());
    target.expects.request_bytes_max = Some(limits.request_bytes_max);
    target.expects.response_bytes_max = Some(limits.response_bytes_max);
    let mut caller = target.caller.clone();
    caller.retain(|(name, _)| name != "X-Caller");
    caller.push(("X-Caller".to_owned(), "flooder".to_owned()));
    target.flood = Some(Flood { caller, keys_max: limits.flood_keys_max });
    Guarded { target, _lives: lives, _peer: peer }
}

fn skipped(report: &Report) -> Vec<&'static str> {
    let lines = report.lines().iter();
    lines.filter(|it| matches!(it.outcome, Outcome::Skipped(_))).map(Line::name).collect()
}

const ONLY_GATEWAYS: [&str; 3] = [
    "a_refused_upstream_frees_the_key",
    "a_reset_upstream_is_unknown",
    "a_silent_upstream_is_unknown",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_right_passes_over_http_1() {
    let server = guarded(Protocol::Http1, Settings::default()).await;
    let report = run(&server.target, None).await;
    assert!(report.is_clean(), "{report}");
    println!("{report}");
    let mut expected = vec![
        "optional_key_missing_runs_each_time",
        "no_hop_by_hop_headers_over_http2",
        "waiting_ends_with_the_first_answer",
        "waiting_ends_in_time",
    ];
    expected.extend(ONLY_GATEWAYS);
    expected.push("a_malformed_tenant_is_400");
    assert_eq!(skipped(&report), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_right_passes_over_http_2() {
    let server = guarded(Protocol::Http2, Settings::default()).await;
    let report = run(&server.target, None).await;
    assert!(report.is_clean(), "{report}");
    let mut expected = vec![
        "optional_key_missing_runs_each_time",
        "control_byte_is_400",
        "header_name_in_other_letters_is_the_same",
        "waiting_ends_with_the_first_answer",
        "waiting_ends_in_time",
    ];
    expected.extend(ONLY_GATEWAYS);
    expected.push("a_malformed_tenant_is_400");
    assert_eq!(skipped(&report), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_the_other_settings_passes() {
    let policy = Policy::builder()
        .wait(Duration::from_millis(500))
        .on_lapse(OnLapse::Takeover)
        .expiry(PolicyExpiry::Tombstone(Duration::from_secs(24 * 3600)))
        .settle_wait(Duration::from_millis(200))
        .build()
        .unwrap();
    let settings = Settings {
        policy,
        required: false,
        quoted_only: true,
        mismatch: StatusCode::CONFLICT,
        replay_ok: true,
        frees_500: true,
        ..Settings::default()
    };
    let mut server = guarded(Protocol::Http1, settings).await;
    server.target.expects = Expectations {
        key: KeyRule::Optional,
        key_syntax: KeySyntax::SfString,
        mismatch: Mismatch::Refused(409),
        replay_status: ReplayStatus::Ok,
        in_progress: InProgress::Wait(Duration::from_millis(500)),
        server_errors: ServerErrors::Released,
        lapse: Lapse::Takeover,
        expiry: Expiry::Tombstone,
        ..server.target.expects
    };
    let report = run(&server.target, None).await;
    println!("{report}");
    assert!(report.is_clean(), "{report}");
}

#[tokio::test]
async fn a_server_that_answers_202_passes() {
    let settings = Settings { accepted: true, ..Settings::default() };
    let mut server = guarded(Protocol::Http1, settings).await;
    server.target.expects.in_progress = InProgress::Accepted;
    let report = run(&server.target, Some("concurrency")).await;
    assert!(report.is_clean(), "{report}");
}

/// The profiles of seed 003, on servers of that kind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_services_pass() {
    let production = Settings {
        required: false,
        mismatch: StatusCode::CONFLICT,
        replay_ok: true,
        authenticates: false,
        tenants_are_uuids: true,
        ..Settings::default()
    };
    let mature = Settings { required: true, ..production.clone() };
    let bug = Some(Bug::PayloadNotCompared);
    let easy = Settings { bug, tenants_are_uuids: false, ..mature.clone() };
    let profiles = [Target::orders, Target::orders_mature, Target::orders_easy];
    for (profile, settings) in profiles.into_iter().zip([production, mature, easy]) {
        let guard = Guard::new(Arc::new(MemoryStore::new()), settings);
        let handler = move |request| guard.clone().call(request);
        let server = Server::start(Protocol::Http1, handler).unwrap();
        let report = run(&profile(server.base()), None).await;
        assert!(report.is_clean(), "{report}");
        println!("{report}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_fails() {
    let target = Target::orders("http://127.0.0.1:1");
    let report = run(&target, Some("same_request_replays")).await;
    assert!(!report.is_clean());
    assert!(report.to_string().contains("no connection to 127.0.0.1:1"), "{report}");
}

/// A suite that passes a server without idempotency is a defect. What it may pass is listed:
/// what such a server does rightly, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_idempotency_fails_wherever_it_matters() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let fixture = Fixture::new();
        let handler = move |request| {
            let fixture = fixture.clone();
            async move { fixture.call(request).await }
        };
        let server = Server::start(protocol, handler).unwrap();
        let report = run(&Target::onceward(server.base()).over(protocol), None).await;
        let passed = report.lines().iter().filter(|line| line.outcome == Outcome::Passed);
        let passed: Vec<_> = passed.map(Line::name).collect();
        let mut harmless = vec![
            "first_answer_carries_no_mark",
            "another_key_runs_again",
            "another_method_is_never_a_replay",
            "other_keys_are_not_held_up",
            "get_with_a_key_runs_each_time",
            "head_with_a_key_runs_each_time",
        ];
        if protocol == Protocol::Http1 {
            // Refused by the parser of the HTTP library.
            harmless.insert(0, "control_byte_is_400");
        }
        assert_eq!(passed, harmless, "{report}");
        assert!(report.failures().count() > 60, "{report}");
    }
}

/// Each bug with the case that finds it.
const FOUND_BY: &[(Bug, &str)] = &[
    (Bug::PayloadNotCompared, "a_changed_field_is_refused"),
    (Bug::NumbersAsFloats, "large_numbers_are_told_apart"),
    (Bug::PathNotCompared, "a_path_parameter_matters"),
    (Bug::RunsWhileRunning, "twenty_at_once_run_once"),
    (Bug::CancelledByHangUp, "a_client_that_hangs_up_changes_nothing"),
    (Bug::LocationForgotten, "location_is_kept"),
    (Bug::NotMarked, "same_request_replays"),
    (Bug::FirstMarked, "first_answer_carries_no_mark"),
    (Bug::CookieReplayed, "cookies_are_not_replayed"),
    (Bug::Keeps429, "a_429_is_not_kept"),
    (Bug::Forgets422, "a_domain_422_is_replayed"),
    (Bug::HeadIsWhole, "the_handler_may_keep_only_the_head"),
    (Bug::UnclearIsIgnored, "an_unclear_outcome_is_not_released"),
    (Bug::ReplaysAs200, "same_request_replays"),
    (Bug::KeyLeaked, "errors_tell_no_secrets"),
    (Bug::PayloadLeaked, "errors_tell_no_secrets"),
    (Bug::TypesShared, "problem_types_are_distinct"),
    (Bug::NoRetryAfter, "in_progress_is_told_with_retry_after"),
    (Bug::StatusLies, "errors_are_problems"),
    (Bug::LongKeysCut, "too_long_key_is_400"),
    (Bug::LastKeyLineWins, "two_different_keys_are_400"),
    (Bug::TenantsShared, "two_tenants_are_independent"),
    (Bug::GuardsGet, "get_with_a_key_runs_each_time"),
    (Bug::OpenWhenStoreIsDown, "store_down_at_the_claim_is_503"),
    (Bug::PanicReleases, "a_panic_is_not_in_progress_for_ever"),
    (Bug::RunsWhileRunning, "store_down_at_the_completion_never_runs_again"),
    (Bug::CrashForgets, "a_crash_after_the_effect_is_unknown"),
    (Bug::CrashForgets, "a_restart_keeps_the_record"),
    (Bug::LapseRunsAgain, "a_lapsed_lease_is_unknown_until_its_owner_completes"),
    (Bug::KeptTooLong, "after_the_ttl_it_is_new_or_expired"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_planted_bug_is_found_by_the_case_that_names_it() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        for (bug, case) in FOUND_BY {
            let server = guarded(protocol, Settings::with(*bug)).await;
            let report = run(&server.target, Some(case)).await;
            assert_eq!(report.failures().count(), 1, "{bug:?} over {protocol}\n{report}");
        }
    }
}
