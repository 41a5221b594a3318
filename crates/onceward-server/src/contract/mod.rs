//! The client contract: what an API promises to its clients about retries, from the configuration
//! of its gateway.
//!
//! It is published, so nothing internal may be in it: no address of the service or the store, no
//! file, no name of a secret or a tenant. Every setting is stated, or left out on purpose: a new
//! field of [`Config`] or of the rules does not compile before that is decided.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`Contract`], as it is printed as JSON |
//! | `terms` | the terms of one operation |
//! | `responses` | which responses are stored, by status |
//! | `owner` | who owns a key, and what else it belongs to |
//! | `region` | the home regions of keys |
//! | `errors` | the errors that clients can get |
//! | `words` | durations, sizes and lists in English |
//! | `markdown/` | the contract as a page |

mod errors;
mod markdown;
mod owner;
mod region;
mod responses;
mod terms;
mod words;

use std::time::Duration;

use onceward_core::InvalidPolicy;
use onceward_http::PROBLEM_DOCS;
use serde::Serialize;

use crate::config::{Config, Limits, QuotaLimits, Quotas, Upstream};
use errors::ErrorTerms;
use owner::Owner;
use region::Regions;
use terms::{Terms, milliseconds};

/// Number of the JSON form; members may be added without a new one.
const FORMAT: u32 = 1;

/// The promises of an API to its clients.
#[derive(Debug, Serialize)]
pub(crate) struct Contract {
    format: u32,
    title: String,
    base_url: Option<String>,
    operations: Vec<Terms>,
    owner: Owner,
    regions: Option<Regions>,
    /// The API finds unknown outcomes out by itself, and retries get them.
    finds_out_unknown_outcomes: bool,
    status_page: StatusPage,
    limits: RequestLimits,
    quota: Option<Quota>,
    /// The limit of requests with one key.
    key_requests: Option<KeyRequests>,
    /// Some limit on new keys exists, of one client or of all.
    limits_new_keys: bool,
    /// Refusals have the members that Stripe's SDKs read.
    stripe_errors: bool,
    errors: Vec<ErrorTerms>,
    error_docs: &'static str,
}

/// Title and address of a published contract.
#[derive(Debug, Clone)]
pub(crate) struct Heading {
    pub(crate) title: String,
    pub(crate) base_url: Option<String>,
}

/// Templates of the paths of an operation's pages.
#[derive(Debug, Serialize)]
struct StatusPage {
    status: String,
    result: String,
}

/// Limits of all requests.
#[derive(Debug, Serialize)]
struct RequestLimits {
    head_bytes_max: u64,
    headers_max: usize,
    #[serde(rename = "body_ms_max", serialize_with = "milliseconds")]
    body_max: Duration,
    #[serde(rename = "response_ms_max", serialize_with = "milliseconds")]
    response_max: Duration,
}

/// Limits of one client's keys; 0 is no limit.
#[derive(Debug, Serialize)]
struct Quota {
    new_keys_per_second: u32,
    new_keys_burst: u32,
    live_keys: u64,
    live_bytes: u64,
}

/// Limit of the requests with one key, retries included.
#[derive(Debug, Serialize)]
struct KeyRequests {
    per_second: u32,
    burst: u32,
}

impl Contract {
    /// The contract of a configuration whose rules were checked.
    pub(crate) fn of(config: &Config, heading: Heading) -> Result<Self, InvalidPolicy> {
        let Config {
            profile: _, // fills in the rules and the format of problems
            stripe_errors: _,
            listeners: _,
            upstream,
            store: _,
            scope,
            region,
            authorization,
            defaults,
            operations,
            protect_others,
            cors: _,
            quotas,
            limits,
            admin: _,
            claims: _, // workers have a contract of their own: docs/claims.md
            tokens: _,
            operations_at,
            resolver,
            reconciler: _,
            telemetry: _,
        } = config;
        let named = operations.iter().map(|operation| Terms::named(operation, defaults));
        let others = protect_others.then(|| Terms::others(defaults));
        let operations = named.chain(others).collect::<Result<Vec<_>, _>>()?;
        let owner = Owner::of(scope);
        let caller_quota = if scope.single_tenant { QuotaLimits::NONE } else { quotas.caller() };
        let mut contract = Self {
            format: FORMAT,
            title: heading.title,
            base_url: heading.base_url,
            operations,
            owner,
            regions: region.as_ref().map(Regions::of),
            finds_out_unknown_outcomes: resolver.is_some(),
            status_page: StatusPage::under(operations_at),
            limits: RequestLimits::of(limits, upstream),
            quota: Quota::of(&caller_quota),
            key_requests: KeyRequests::of(quotas),
            limits_new_keys: is_limited(quotas, &caller_quota),
            stripe_errors: config.problem_format().stripe_errors,
            errors: Vec::new(),
            error_docs: PROBLEM_DOCS,
        };
        contract.errors = contract.possible_errors(authorization.is_some());
        Ok(contract)
    }

    /// The operations with a promise. Shadow mode promises nothing.
    fn protected(&self) -> impl Iterator<Item = &Terms> {
        self.operations.iter().filter(|terms| terms.is_protected())
    }
}

impl StatusPage {
    fn under(operations_at: &str) -> Self {
        let status = format!("{operations_at}/operations/{{operation_id}}");
        Self { result: format!("{status}/result"), status }
    }
}

impl RequestLimits {
    fn of(limits: &Limits, upstream: &Upstream) -> Self {
        let Limits {
            connections: _,
            head_timeout: _,
            body_timeout: _, // a pause; the total below bounds it
            body_total,
            write_timeout: _,
            buffer_bytes: _,
            head_bytes,
            headers,
            streams: _,
            drain: _,
            threads: _,
        } = limits;
        Self {
            head_bytes_max: head_bytes.0,
            headers_max: *headers,
            body_max: body_total.0,
            response_max: upstream.response_timeout.0,
        }
    }
}

impl Quota {
    /// `None` without a limit.
    fn of(limits: &QuotaLimits) -> Option<Self> {
        let QuotaLimits { new_keys_per_second, new_keys_burst: _, live_keys, live_bytes } = *limits;
        let quota = Self {
            new_keys_per_second,
            new_keys_burst: limits.burst(),
            live_keys,
            live_bytes: live_bytes.0,
        };
        (new_keys_per_second > 0 || live_keys > 0 || live_bytes.0 > 0).then_some(quota)
    }
}

impl KeyRequests {
    /// `None` without a limit.
    fn of(quotas: &Quotas) -> Option<Self> {
        let Quotas {
            // Limits of new keys, of one client and of all.
            new_keys_per_second: _,
            new_keys_burst: _,
            live_keys: _,
            live_bytes: _,
            total: _,
            key_requests_per_second: per_second,
            key_requests_burst: _,
        } = *quotas;
        (per_second > 0).then(|| Self { per_second, burst: quotas.key_burst() })
    }
}

/// The limits of all clients together are internal; that there are some is not.
fn is_limited(quotas: &Quotas, caller: &QuotaLimits) -> bool {
    [caller, &quotas.total].into_iter().any(|limits| Quota::of(limits).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RuleSettings;
    use onceward_http::Code;
    use std::path::Path;

    fn contract(config: &str) -> Contract {
        let config = Config::parse(config, Path::new("onceward.toml")).unwrap();
        let heading = Heading { title: "Contract".into(), base_url: None };
        Contract::of(&config, heading).unwrap()
    }

    /// Each rule of `[defaults]` and `[[operations]]` with a value, and the settings that it needs to
    /// have an effect. A new rule belongs here, or into [`UNSTATED`] with the reason.
    const STATED: &[(&str, &str, &str)] = &[
        ("mode", "\"shadow\"", ""),
        ("required", "true", ""),
        ("key", "\"paypal\"", ""),
        ("key_syntax", "\"bare\"", ""),
        ("key_min", "16", ""),
        ("key_max", "64", ""),
        ("key_format", "\"uuid\"", ""),
        ("ttl", "\"7days\"", ""),
        ("lease", "\"10s\"", ""),
        ("on_lapse", "\"takeover\"", ""),
        ("expiry", "\"tombstone\"", ""),
        ("tombstone", "\"90days\"", "expiry = \"tombstone\""),
        ("in_progress", "\"accepted\"", ""),
        ("wait_max", "\"2s\"", "in_progress = \"wait\""),
        ("mismatch_status", "409", ""),
        ("replay_status", "\"ok\"", ""),
        ("replay_headers", "[\"X-Replay\"]", ""),
        ("outcomes", "\"success-only\"", ""),
        ("replay_check", "\"resolver\"", ""),
        ("response_body", "\"omit\"", ""),
        ("retry_after", "\"7s\"", ""),
        ("request_max_bytes", "1000", ""),
        ("response_max_bytes", "1000", ""),
        ("response_headers_keep", "[\"X-Request-Id\"]", ""),
        ("response_headers_drop", "[\"X-Debug\"]", ""),
        ("store_down", "\"open\"", ""),
        ("completion_lost", "\"fail\"", ""),
        ("fingerprint_include", "[\"/amount\"]", ""),
        ("fingerprint_exclude", "[\"/sent_at\"]", ""),
        ("fingerprint_api_version", "\"Api-Version\"", ""),
        ("fingerprint_host", "false", ""),
        ("fingerprint_explain", "false", ""),
        ("reference", "{ header = \"X-Reference\" }", ""),
        ("reference_known", "\"conflict\"", "reference = { body = \"/r\" }"),
        ("reference_ttl", "\"90days\"", "reference = { body = \"/r\" }"),
    ];

    /// A section that some rules need, and that changes nothing about the others.
    const RESOLVER: &str = "[resolver.http]\nurl = \"/o/{operation}\"\n";

    /// Rules that clients do not notice, and why.
    const UNSTATED: &[(&str, &str)] = &[("record_path", "only operators see it")];

    #[test]
    fn every_rule_is_stated_or_left_out_on_purpose() {
        let stated = STATED.iter().map(|(name, ..)| *name);
        let considered: Vec<_> = stated.chain(UNSTATED.iter().map(|(name, _)| *name)).collect();
        for name in RuleSettings::NAMES {
            assert!(considered.contains(name), "is {name} in the client contract?");
        }
        assert_eq!(considered.len(), RuleSettings::NAMES.len(), "a rule no longer exists");
    }

    #[test]
    fn each_rule_changes_the_contract_of_the_defaults_and_of_an_operation() {
        let operation =
            "protect_others = false\n[[operations]]\nroute = \"/a\"\nrequired = false\n";
        for (name, value, needs) in STATED {
            for section in ["[defaults]\n", operation] {
                let section = match *name {
                    "required" => section.replace("required = false\n", ""),
                    _ => section.to_owned(),
                };
                let value =
                    if section.contains("/a") && *name == "required" { "false" } else { value };
                let before = contract(&format!("{section}{needs}\n{RESOLVER}"));
                let after = format!("{section}{needs}\n{name} = {value}\n{RESOLVER}");
                let after = contract(&after);
                assert_ne!(before.markdown(), after.markdown(), "{name}");
                let json = |contract: &Contract| serde_json::to_string(contract).unwrap();
                assert_ne!(json(&before), json(&after), "{name}");
            }
        }
    }

    #[test]
    fn settings_of_the_whole_gateway_change_the_contract() {
        for (setting, expected) in [
            ("operations_at = \"/retries\"", "GET /retries/operations/"),
            ("stripe_errors = true", "Stripe-Should-Retry"),
            ("protect_others = false\n[[operations]]\nroute = \"/a\"", "`POST /a`"),
            ("[upstream]\nresponse_timeout = \"7s\"", "response:** 7 seconds"),
            ("[limits]\nbody_total = \"9s\"", "body:** 9 seconds"),
            ("[limits]\nhead_bytes = \"8KiB\"", "8 KiB together"),
            ("[limits]\nheaders = 50", "at most 50"),
            ("[quotas]\nnew_keys_per_second = 3", "3 a second on average (30 at once)"),
            (
                "[quotas]\nkey_requests_per_second = 3",
                "one key:** 3 a second on average (30 at once)",
            ),
            ("[quotas.total]\nlive_keys = 3", "Their number is limited. Over"),
            ("[authorization]\nurl = \"http://a\"", "AUTHORIZATION_UNAVAILABLE"),
            ("[resolver.http]\nurl = \"/o/{operation}\"", "The API finds out what happened"),
            ("[scope]\nsingle_tenant = true", "All clients of this API share their keys"),
            ("[scope]\ntenant = \"host\"", "identified by the host name"),
            ("[scope]\ncaller = \"each_credential\"", "identified by your credentials"),
            ("[scope]\ncaller = \"certificate_subject\"", "subject of your client certificate"),
            ("[scope]\ncaller = { cookie_digest = \"sid\" }", "your cookie `sid`"),
            ("[scope]\ncaller = { header_digest = \"x-api-key\" }", "your header `X-Api-Key`"),
            ("[scope]\ncaller = { header = \"x-user\" }", "identified by your account."),
            ("[scope]\ntenant = { header = \"x-org\" }", "identified by your organisation."),
            ("[scope]\napi_version = { header = \"api-version\" }", "your header `Api-Version`"),
            (
                "[scope]\nparent = { path = \"cart\" }\n[[operations]]\nroute = \"/carts/{cart}/pay\"",
                "the parameter `{cart}` of the path",
            ),
            ("[scope]\nregion = \"host\"", "belongs to the host name that you send requests to"),
            ("[scope]\nparent = { header = \"x-cart\" }", "belongs to the value of your header"),
            ("[region]\nname = \"eu\"\nof_key = { prefix_before = \"_\" }", "as in `eu_8e03978e"),
            (
                "[region]\nname = \"eu\"\nof_key = { prefix_before = \"_\" }\nothers = \"forward\"\n[region.gateways]\nus = \"http://a\"",
                "to any region: it is passed on",
            ),
            (
                "[region]\nname = \"eu\"\nof_key = { prefix_before = \"_\" }\nunnamed = \"here\"",
                "**a retry that reaches another one is executed again**",
            ),
            (
                "[region]\nname = \"eu\"\nof_key = { prefix_before = \"_\" }\nunnamed = { home = \"eu\" }",
                "A key without a region belongs to `eu`.",
            ),
            (
                "[scope]\ncaller = { claim = \"sub\" }\n[scope.jwt]\njwks_file = \"f\"",
                "the claim `sub` of your token",
            ),
        ] {
            let text = contract(setting).markdown();
            assert!(text.contains(expected), "{setting}: {text}");
            assert!(!contract("").markdown().contains(expected), "{setting}");
        }
    }

    #[test]
    fn every_error_is_possible_under_some_configuration() {
        let full = "[scope]\ntenant = { header_digest = \"x-org\" }\n\
                    caller = { header_digest = \"x-api-key\" }\n\
                    api_version = \"host\"\nparent = \"host\"\nregion = \"host\"\n\
                    [quotas]\nlive_keys = 1\n[resolver.http]\nurl = \"/o/{operation}\"\n\
                    [defaults]\nrequired = true\nreplay_check = \"resolver\"\n\
                    expiry = \"tombstone\"\nreference = { body = \"/r\" }";
        let codes = |contract: Contract| contract.errors.into_iter().map(|error| error.code);
        let possible: Vec<_> = codes(contract(full)).chain(codes(contract(""))).collect();
        let missing =
            Code::ALL.iter().filter(|code| !possible.iter().any(|it| it == code.as_str()));
        assert_eq!(missing.collect::<Vec<_>>(), [&Code::RolledBack]);
    }

    #[test]
    fn errors_have_the_statuses_of_the_configuration() {
        let statuses = |config: &str, code: Code| {
            let errors = contract(config).errors;
            errors.into_iter().find(|it| it.code == code.as_str()).map(|it| it.statuses)
        };
        let (reused, unknown) = (Code::KeyReused, Code::OutcomeUnknown);
        assert_eq!(statuses("", reused), Some(vec![422]));
        assert_eq!(statuses("profile = \"stripe\"", reused), Some(vec![400]));
        let both = "[[operations]]\nroute = \"/a\"\nmismatch_status = 409";
        assert_eq!(statuses(both, reused), Some(vec![409, 422]));
        assert_eq!(statuses("", unknown), Some(vec![409]));
        let fail = "[defaults]\ncompletion_lost = \"fail\"";
        assert_eq!(statuses(fail, unknown), Some(vec![409, 500]));
        assert_eq!(statuses("", Code::InvalidCredentials), None);
        let authorized = "[authorization]\nurl = \"http://a\"";
        assert_eq!(statuses(authorized, Code::InvalidCredentials), Some(vec![401, 403]));
        // A status page can be refused for the same reasons.
        assert_eq!(statuses("", Code::OperationNotFound), Some(vec![404, 405]));
    }

    #[test]
    fn an_unknown_outcome_is_retryable_only_while_it_is_looked_up() {
        let retryable = |config: &str| {
            let errors = contract(config).errors;
            let unknown = errors.into_iter().find(|it| it.code == Code::OutcomeUnknown.as_str());
            unknown.map(|error| (error.retryable, error.same_key))
        };
        assert_eq!(retryable(""), Some((false, true)));
        let resolver = "[resolver.http]\nurl = \"/o/{operation}\"";
        assert_eq!(retryable(resolver), Some((true, true)));
    }

    #[test]
    fn operations_with_the_same_terms_share_a_sentence() {
        let text = contract(
            "[[operations]]\nroute = \"/a\"\nkey_min = 8\n[[operations]]\nroute = \"/b\"\n\
             [[operations]]\nroute = \"/c\"\nreference = { body = \"/r\" }",
        )
        .markdown();
        let length = "- **Length:**\n  - `POST /a`: 8 to 255 characters.\n  - All others: 1 to 255";
        assert!(text.contains(length), "{text}");
        // Only one operation has a reference, so nothing is said about all others.
        let reference = "- **Where it is:**\n  - `POST /c`: In the member `/r` of the JSON body: 1";
        assert!(text.contains(reference), "{text}");
    }

    #[test]
    fn a_key_in_a_body_is_shown_where_it_goes() {
        let text = contract("[[operations]]\nroute = \"/a\"\nkey = { body = \"/x~1y/key\" }");
        let example = "{ \"x/y\": { \"key\": \"8e03978e-40d5-43e8-bc93-6894a57f9324\", … }, … }";
        assert!(text.markdown().contains(example), "{}", text.markdown());
    }
}
