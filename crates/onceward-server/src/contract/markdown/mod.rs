//! The contract as a Markdown page.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the page and its sections |
//! | `facts` | sentences about operations |
//! | `region` | sentences about the home regions of keys |
//! | `identity` | sentences about the owner of a key |
//! | `advice` | what a client should know under every configuration |
//! | `page` | the blocks of a page |

mod advice;
mod facts;
mod identity;
mod page;
mod region;

use super::errors::ErrorTerms;
use super::region::Regions;
use super::terms::{Place, Promise, Requests, Syntax, Terms, WhileRunningAnswer as Answer};
use super::words::{code, count, duration, either, header, line, list, size};
use super::{Contract, Quota};
use facts::Fact;
use page::Page;

/// A key for examples.
const EXAMPLE_KEY: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";

/// Operations about which the same is said.
struct Group {
    /// Their requests, in words.
    requests: String,
    text: String,
}

impl Contract {
    /// Returns the contract as a page, ready to publish.
    pub(crate) fn markdown(&self) -> String {
        let mut page = Page::default();
        page.title(&self.title);
        if self.protected().next().is_none() {
            page.paragraph(advice::NOTHING_PROMISED);
            return page.finish();
        }
        page.paragraph(advice::INTRODUCTION);
        self.write_summary(&mut page);
        self.write_requests(&mut page);
        self.write_key(&mut page);
        self.write_same_request(&mut page);
        self.write_retries(&mut page);
        self.write_responses(&mut page);
        self.write_unknown_outcomes(&mut page);
        self.write_references(&mut page);
        self.write_limits(&mut page);
        self.write_status_page(&mut page);
        self.write_errors(&mut page);
        self.write_how_to_retry(&mut page);
        page.finish()
    }

    fn write_summary(&self, page: &mut Page) {
        page.heading("In short");
        let kept: Vec<_> = self.protected().map(|terms| terms.retention).collect();
        let shortest = kept.iter().min().copied().unwrap_or_default();
        let least = if kept.iter().all(|it| *it == shortest) { "" } else { "at least " };
        page.paragraph(format!("{}it is kept for {least}{}.", advice::SUMMARY, duration(shortest)));
        if let Some(terms) = self.protected().min_by_key(|terms| example_rank(terms)) {
            page.paragraph("For example:");
            page.http(&self.example(terms));
        }
    }

    /// A request of an operation.
    fn example(&self, terms: &Terms) -> String {
        let method = terms.requests.methods.first().map_or("POST", String::as_str);
        let url = self.url(terms.requests.route.as_deref().unwrap_or("/orders"));
        let prefix = self.regions.as_ref().map_or(String::new(), Regions::prefix);
        let key = match terms.key.syntax {
            Syntax::Quoted => format!("\"{prefix}{EXAMPLE_KEY}\""),
            Syntax::QuotedOrBare | Syntax::Bare | Syntax::Json => format!("{prefix}{EXAMPLE_KEY}"),
        };
        let (head, body) = match &terms.key.place {
            Place::Header(name) => (format!("{}: {key}\n", header(name)), "{ … }".to_owned()),
            Place::Body(pointer) => (String::new(), body_with_key(pointer, &key)),
        };
        format!("{method} {url}\n{head}Content-Type: application/json\n\n{body}")
    }

    fn url(&self, path: &str) -> String {
        line(&format!("{}{path}", self.base_url.as_deref().unwrap_or_default()))
    }

    fn write_requests(&self, page: &mut Page) {
        page.heading("Requests");
        let rows: Vec<_> = self.operations.iter().map(|terms| self.request_row(terms)).collect();
        page.table(["Request", "Idempotency key", "Response is kept for"], &rows);
        let routes = || self.operations.iter().filter_map(|it| it.requests.route.as_deref());
        if routes().any(|route| route.contains('{')) {
            page.paragraph(advice::TEMPLATES);
        }
        if self.operations.iter().any(|terms| !terms.is_protected()) {
            page.paragraph(advice::ON_TRIAL);
        }
        page.paragraph(advice::OTHER_REQUESTS);
        if self.protected().any(Terms::has_pointers) {
            page.paragraph(advice::POINTERS);
        }
    }

    fn request_row(&self, terms: &Terms) -> [String; 3] {
        let place = facts::place(&terms.key.place);
        let (key, kept) = match (terms.promise, terms.key.required) {
            (Promise::Protected, true) => (format!("required, {place}"), duration(terms.retention)),
            (Promise::Protected, false) => {
                (format!("optional, {place}"), duration(terms.retention))
            }
            (Promise::None, _) => ("on trial".to_owned(), "nothing is promised".to_owned()),
        };
        [self.label(&terms.requests), key, kept]
    }

    /// The requests of an operation, as a code span or in words.
    fn label(&self, Requests { methods, route, .. }: &Requests) -> String {
        let other = if self.operations.len() > 1 { "any other" } else { "any" };
        match route {
            Some(route) => code(&format!("{} {route}", methods.join(" "))),
            None => format!("{other} {}", either(methods)),
        }
    }

    fn write_key(&self, page: &mut Page) {
        page.heading("The key");
        page.items(&self.facts(facts::KEY));
        page.paragraph(advice::KEY);
        page.subheading("Whose key it is");
        identity::sentences(&self.owner).into_iter().for_each(|text| page.paragraph(text));
        if let Some(regions) = &self.regions {
            page.subheading("Its region");
            region::sentences(regions).into_iter().for_each(|text| page.paragraph(text));
        }
    }

    fn write_same_request(&self, page: &mut Page) {
        page.heading("What counts as the same request");
        page.items(&self.facts(facts::SAME_REQUEST));
    }

    fn write_retries(&self, page: &mut Page) {
        page.heading("What a retry gets");
        page.items(&self.facts(facts::RETRY));
    }

    fn write_responses(&self, page: &mut Page) {
        page.heading("Which responses are stored");
        let groups = self.groups(facts::responses);
        for Group { requests, text } in &groups {
            if groups.len() > 1 {
                page.paragraph(format!("{}:", capitalized(requests)));
            }
            page.paragraph(text);
        }
        page.paragraph(advice::SERVICE_DECIDES);
        page.items(&self.facts(facts::STORED));
    }

    fn write_unknown_outcomes(&self, page: &mut Page) {
        page.heading("Unknown outcomes");
        page.paragraph(advice::UNKNOWN);
        page.paragraph(match self.finds_out_unknown_outcomes {
            true => advice::FOUND_OUT,
            false => advice::NOT_FOUND_OUT,
        });
    }

    fn write_references(&self, page: &mut Page) {
        if self.protected().any(|terms| terms.reference.is_some()) {
            page.heading("Business references");
            page.paragraph(advice::REFERENCE);
            page.items(&self.facts(facts::REFERENCE));
        }
    }

    fn write_limits(&self, page: &mut Page) {
        page.heading("Limits");
        let limits = &self.limits;
        let (body, response) = (duration(limits.body_max), duration(limits.response_max));
        let (headers, head) = (limits.headers_max, size(limits.head_bytes_max));
        let mut items = self.facts(facts::LIMITS);
        items.extend([
            format!(
                "**Time for the request body:** {body}; after that, the request gets 408 and is \
                 not executed."
            ),
            format!(
                "**Request headers:** at most {headers}, and {head} together with the request \
                 line; more get 431."
            ),
            format!(
                "**Time for the response:** {response}; after that, the request gets 504 \
                 `UPSTREAM_UNANSWERED`, and its outcome is unknown. Choose a longer timeout for \
                 each attempt."
            ),
        ]);
        items.extend(self.key_requests.as_ref().map(|limit| {
            format!(
                "**Requests with one key:** {} a second on average ({} at once), retries included; more \
                 get 429 `IDEMPOTENCY_QUOTA_EXCEEDED` with `Retry-After`.",
                limit.per_second, limit.burst
            )
        }));
        items.extend(self.limits_new_keys.then(|| new_keys(self.quota.as_ref())));
        page.items(&items);
    }

    fn write_status_page(&self, page: &mut Page) {
        page.heading("Status page");
        page.paragraph(advice::STATUS_BEFORE);
        page.http(&format!("GET {}", self.url(&self.status_page.status)));
        page.paragraph(advice::STATUS_AFTER);
    }

    fn write_errors(&self, page: &mut Page) {
        page.heading("Errors");
        page.paragraph(advice::ERRORS);
        let differs = self.protected().any(|terms| terms.same_request.names_differences);
        let members = advice::ERROR_MEMBERS.iter().chain(differs.then_some(&advice::DIFFERS));
        let members: Vec<_> =
            members.map(|(name, meaning)| [code(name), (*meaning).to_owned()]).collect();
        page.table(["Member", "Meaning"], &members);
        if self.stripe_errors {
            page.paragraph(advice::STRIPE_ERRORS);
        }
        let rows: Vec<_> = self.errors.iter().map(error_row).collect();
        page.table(["Code", "Status", "Meaning", "Retry?"], &rows);
    }

    fn write_how_to_retry(&self, page: &mut Page) {
        page.heading("How to retry");
        let accepts = self.protected().any(|it| it.while_running.answer == Answer::Accepted);
        let accepted = if accepts { advice::ACCEPTED } else { "" };
        let mut marks = self.protected().filter_map(|terms| terms.replay.marks.first());
        let replayed = marks.next().map_or(String::new(), |mark| {
            let mark = code(&format!("{}: true", header(mark)));
            format!("   - A response with {mark}: it is final, whatever its status.\n")
        });
        let (before, after) = (advice::BEFORE_RETRYING, advice::RETRYING);
        page.paragraph(format!("{before}{accepted}{replayed}{after}"));
        page.paragraph(advice::PSEUDOCODE);
        page.subheading("In browsers and apps");
        page.paragraph(advice::BROWSERS);
        page.heading("What never to do");
        page.paragraph(advice::NEVER);
    }

    /// A list item for each fact that some operation has.
    fn facts(&self, facts: &[Fact]) -> Vec<String> {
        let item = |Fact { label, text }: &Fact| {
            let groups = self.groups(*text);
            if let [Group { text, .. }] = groups.as_slice() {
                return (!text.is_empty()).then(|| format!("**{label}:** {text}"));
            }
            let lines = groups.iter().filter(|group| !group.text.is_empty());
            let lines = lines.map(|it| format!("\n  - {}: {}", capitalized(&it.requests), it.text));
            Some(format!("**{label}:**{}", lines.collect::<String>()))
        };
        facts.iter().filter_map(item).collect()
    }

    /// The protected operations, grouped by what a function says about them. The largest group comes
    /// last as "all others", unless nothing is said about some.
    fn groups(&self, say: fn(&Terms) -> String) -> Vec<Group> {
        let mut groups: Vec<(Vec<&Terms>, String)> = Vec::new();
        for terms in self.protected() {
            let text = say(terms);
            match groups.iter_mut().find(|(_, known)| *known == text) {
                Some((members, _)) => members.push(terms),
                None => groups.push((vec![terms], text)),
            }
        }
        let largest = (0..groups.len()).max_by_key(|index| groups[*index].0.len());
        let all_have_text = groups.len() > 1 && groups.iter().all(|(_, text)| !text.is_empty());
        let rest = largest.filter(|index| all_have_text && groups[*index].0.len() > 1);
        let rest = rest.map(|index| groups.remove(index).1);
        let named = |(members, text): (Vec<&Terms>, String)| {
            let names: Vec<_> = members.iter().map(|it| self.label(&it.requests)).collect();
            Group { requests: list(&names), text }
        };
        let rest = rest.map(|text| Group { requests: "all others".to_owned(), text });
        groups.into_iter().map(named).chain(rest).collect()
    }
}

/// Prefers requests with a required key, and paths without parameters, for an example.
fn example_rank(terms: &Terms) -> (bool, bool) {
    let route = terms.requests.route.as_deref();
    (!terms.key.required, route.is_some_and(|route| route.contains('{')))
}

/// A JSON body with the key at a pointer.
fn body_with_key(pointer: &str, key: &str) -> String {
    let members = pointer.split('/').skip(1).map(|it| it.replace("~1", "/").replace("~0", "~"));
    let members: Vec<_> = members.collect();
    let json = |text: &str| serde_json::Value::from(text).to_string();
    let around = |inner: String, name: &String| format!("{{ {}: {inner}, … }}", json(name));
    members.iter().rev().fold(json(key), around)
}

fn capitalized(text: &str) -> String {
    match text.split_at_checked(1) {
        Some((first, rest)) => first.to_ascii_uppercase() + rest,
        None => text.to_owned(),
    }
}

/// The limits on new keys.
fn new_keys(quota: Option<&Quota>) -> String {
    let limits = quota.map_or(String::new(), |quota| {
        let Quota { new_keys_per_second: rate, new_keys_burst: burst, live_keys, live_bytes } =
            *quota;
        let limit = |number: u64, text: String| (number > 0).then_some(text);
        let limits = [
            limit(rate.into(), format!("{rate} a second on average ({burst} at once)")),
            limit(live_keys, format!("{} whose response is kept", count(live_keys))),
            limit(live_bytes, format!("{} of stored responses", size(live_bytes))),
        ];
        format!(
            " At most {} for each client.",
            list(&limits.into_iter().flatten().collect::<Vec<_>>())
        )
    });
    format!(
        "**New keys:** Their number is limited.{limits} Over a limit, a request with a new key \
         gets 429 `IDEMPOTENCY_QUOTA_EXCEEDED` with `Retry-After` and is not executed. Retries \
         pass."
    )
}

fn error_row(error: &ErrorTerms) -> [String; 4] {
    let ErrorTerms { code: name, statuses, title, detail, retryable, same_key } = error;
    let statuses: Vec<_> = statuses.iter().map(u16::to_string).collect();
    let meaning = match detail.as_str() {
        "" => format!("{title}: see `detail`."),
        detail => format!("{title}. {detail}"),
    };
    let retry = match (retryable, same_key) {
        (true, _) => "yes, with the same key",
        (false, true) => "not as it is; keep the key",
        (false, false) => "no",
    };
    [code(name), either(&statuses), meaning, retry.to_owned()]
}
