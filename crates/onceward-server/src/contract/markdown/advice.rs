//! What a client should know under every configuration.

pub(super) const NOTHING_PROMISED: &str = "\
This API promises nothing about retries: every request is executed, also one with an idempotency \
key that was used before.";

pub(super) const INTRODUCTION: &str = "\
If a request gets no response, you cannot know whether it was executed. Send it again with the \
same **idempotency key**: the API executes it once, and answers each retry with the response to \
the first request.";

pub(super) const SUMMARY: &str = "\
1. Create one key for each thing that should happen once, such as one payment: a random UUID. \
Store it before you send the request.
2. Send the key with the request, and with every retry of it.
3. If no response comes in time, or an error says `\"retryable\": true`, send the same request with \
the same key again, after a pause.
4. Never create a new key for a retry: a request with a new key is a new request, and is executed.
5. Stop retrying before the key is forgotten: ";

pub(super) const TEMPLATES: &str = "\
`{name}` in a path stands for one of its segments, `{*name}` for the rest of it.";

pub(super) const ON_TRIAL: &str = "\
Requests that are on trial are executed each time, with a key or without. Send keys with them \
already, and do not rely on them yet.";

pub(super) const OTHER_REQUESTS: &str = "\
For all other requests a key has no effect. GET, HEAD, OPTIONS and TRACE change nothing and need \
none.";

pub(super) const KEY: &str = "\
Create keys at random, best as UUIDs of version 4, so that no two are the same and none can be \
guessed. A key is only a name: do not put data into it. Logs of clients and proxies contain keys.";

pub(super) const SHARED_KEYS: &str = "\
All clients of this API share their keys. So create them at random: with a key that another client \
has used, you get an error, or its response.";

pub(super) const BOUND_CREDENTIALS: &str = "\
A key is bound to the credentials of its first request: to its token, API key, cookies and client \
certificate, or to none of them. Retry with the same credentials. A request with others gets 403 \
`IDEMPOTENCY_KEY_USED_WITH_OTHER_CREDENTIALS` (401 if it has none) and is not executed. If your \
credentials have changed between two attempts, do not use a new key: look up whether the request \
was executed.";

pub(super) const EACH_CREDENTIAL: &str = "\
A refreshed token counts as other credentials.";

pub(super) const ACCOUNT: &str = "Your token may be refreshed in between.";

pub(super) const TOKEN_CLAIM: &str = "\
Your token may be refreshed in between, if the claim stays the same.";

pub(super) const CERTIFICATE: &str = "\
Your certificate may be renewed in between, if the subject stays the same.";

pub(super) const POINTERS: &str = "\
Members are named by [JSON pointers](https://www.rfc-editor.org/rfc/rfc6901): `/a/b` is the member \
`b` of the member `a`.";

pub(super) const SERVICE_DECIDES: &str = "\
The API can decide otherwise about a single response, if it knows better whether the request had \
an effect.";

pub(super) const UNKNOWN: &str = "\
If the outcome of a request is unknown, it may have been executed, wholly, in part or not at all. It \
is not executed again: a retry gets 409 `IDEMPOTENCY_OUTCOME_UNKNOWN`. **Keep the key**, because the \
same request with a new key could be executed a second time.";

pub(super) const FOUND_OUT: &str = "\
The API finds out what happened. Send the same request with the same key again, after \
`Retry-After`: once the outcome is known, the retry gets it, or is executed if nothing had happened.";

pub(super) const NOT_FOUND_OUT: &str = "\
Look up what should exist if the request was executed, or ask the operators of this API; give them \
the `operation_id` of the error. Once they have decided, a retry with the same key gets the outcome, \
or is executed if nothing had happened.";

pub(super) const REFERENCE: &str = "\
A business reference is your own name for what you request, such as a payment reference. The API \
remembers it for longer than the key, and under every key.";

pub(super) const STATUS_BEFORE: &str = "\
Each request with a key is an operation. Errors about it have its `operation_id`, and in `instance` \
the path of its status page. Ask with the credentials of the request; other callers get 404.";

pub(super) const STATUS_AFTER: &str = "\
The `state` is `running` (ask again after `Retry-After`), `completed`, `failed` (its response is an \
error), `released` (nothing happened; the key is free), `unknown` or `expired`. `result` has status \
and `Location` of the response to the first request, and in `href` the path where you get all of it.";

pub(super) const ERRORS: &str = "\
A gateway in front of the service recognises retries. Its errors have the content type \
`application/problem+json` ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)) and these members. \
All other errors come from the service itself.";

pub(super) const ERROR_MEMBERS: &[(&str, &str)] = &[
    ("code", "the error, for programs"),
    ("title", "the error, for people"),
    ("detail", "what to do about it"),
    ("status", "the HTTP status"),
    ("retryable", "true if the same request can succeed later"),
    ("same_key", "true if you may send it again with the same key"),
    ("operation_id", "the operation, if there is one"),
    ("instance", "the path of its status page"),
    ("original_status", "the status of a first response that was not stored"),
    ("type", "the address where the error is explained"),
];

pub(super) const DIFFERS: (&str, &str) =
    ("differs", "the parts in which a request differs from the first one with its key");

pub(super) const STRIPE_ERRORS: &str = "\
For Stripe's SDKs, these errors also have the member `error` (with `type`, `code` and `message`) and \
the header `Stripe-Should-Retry`.";

pub(super) const BEFORE_RETRYING: &str = "\
1. Create the key before the first attempt, and store it together with what you are going to \
request, so that it survives a crash of your program.
2. Limit the time of each attempt, and set a deadline for all attempts together. The deadline must \
be shorter than the time for which the response is kept.
3. Look at the response. The first of these that fits counts:
";

pub(super) const ACCEPTED: &str = "   \
   - 202 to a retry: the first request is still running. Ask its status page, or retry.
";

pub(super) const RETRYING: &str = "   \
   - 2xx or 3xx: it is done.
   - An error with `\"retryable\": true`: wait, then send the same request with the same key again.
   - An error with `\"retryable\": false`: do what its `detail` says before you send anything again. If it \
has `\"same_key\": true`, keep the key: see [unknown outcomes](#unknown-outcomes).
   - No response, 408, 425, 429, or another 5xx: wait, then send the same request with the same key \
again.
   - Any other error comes from the service and is final. Correct the request, and send it with a new \
key.
4. Wait as long as `Retry-After` says. Without that header, wait for a random time up to 1 s, then up \
to 2 s, 4 s, 8 s and so on, but not longer than a minute. Without the randomness, all clients come \
back at the same moment.
5. After the deadline, the outcome is not known to you. Look up what should exist if the request was \
executed, before you begin anew with a new key.";

pub(super) const PSEUDOCODE: &str = "\
```text
key = random UUID, stored with the payment
for attempt = 0, 1, 2, …
    response = send(request, key, timeout)
    if response is final: return it
    pause = Retry-After, or random(0 … min(60 s, 2^attempt s))
    if now + pause > deadline: return \"not known yet\"
    sleep(pause)
```";

pub(super) const BROWSERS: &str = "\
Create the key when the form is shown, not when it is submitted: then a second click, or a second \
attempt after an error, has the same key. Keep it across a reload of the page, for example in \
`sessionStorage`, and create a new one when the user begins something new. A disabled button is good \
for your users, but it protects nothing.";

pub(super) const NEVER: &str = "\
- Never create a new key for a retry.
- Never use a key for two different requests, nor a constant such as `retry` or `today`.
- Never change the request between two attempts, not even a timestamp in its body.
- Never retry without a pause, without an end, or after the time for which the response is kept.
- Never go on retrying after you have told your user that it failed.
- Never put an e-mail address, a name or a secret into a key.
- Never let a proxy or a service mesh create keys: each attempt would get another one. Let it retry \
only requests that have a key.";
