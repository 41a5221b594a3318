//! CORS headers of refusals. Without them a browser hides a refusal from the page that sent the
//! request, which then looks like a network error.
//!
//! The service's own responses keep their CORS headers, and the gateway learns from them which
//! origins the service allows. A browser sends a preflight request before a request with a key, so
//! the gateway knows the origin when it writes the first refusal. `[cors]` configures origins for a
//! gateway that has not seen the preflight.

use std::collections::HashMap;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
    HeaderMap, HeaderValue, ORIGIN, VARY,
};
use http::{Request, Response};
use onceward_http::Refusal;
use parking_lot::Mutex;

use crate::config;

/// Largest number of remembered origins: a bound on memory, far above what one service allows.
const LEARNED_MAX: usize = 1024;

/// Length limit of a remembered origin.
const ORIGIN_BYTES_MAX: usize = 256;

/// The headers of a refusal that pages may read.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("Retry-After, Location, Link, Stripe-Should-Retry");

/// Origins that may read refusals.
pub(crate) struct Cors {
    settings: config::Cors,
    learned: Mutex<HashMap<HeaderValue, Allowed>>,
}

/// The CORS permission of one origin.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Allowed {
    /// The origin, or `*`.
    origin: HeaderValue,
    credentials: bool,
}

impl Cors {
    pub(crate) fn new(settings: &config::Cors) -> Self {
        Self { settings: settings.clone(), learned: Mutex::default() }
    }

    /// The origin of the page that sent a request.
    pub(crate) fn origin<B>(request: &Request<B>) -> Option<HeaderValue> {
        request.headers().get(ORIGIN).cloned()
    }

    /// Makes a refusal readable for its page, and learns from all other responses.
    pub(crate) fn finish<B>(&self, origin: HeaderValue, response: &mut Response<B>) {
        if response.extensions().get::<Refusal>().is_none() {
            self.learn(origin, response.headers());
        } else if let Some(allowed) = self.allowed(&origin) {
            allowed.write(response.headers_mut());
        }
    }

    fn learn(&self, origin: HeaderValue, headers: &HeaderMap) {
        let Some(allowed_origin) = headers.get(ACCESS_CONTROL_ALLOW_ORIGIN) else { return };
        if (allowed_origin != origin && allowed_origin != "*") || origin.len() > ORIGIN_BYTES_MAX {
            return;
        }
        let credentials = headers.get(ACCESS_CONTROL_ALLOW_CREDENTIALS);
        let credentials = credentials.is_some_and(|value| value == "true");
        let allowed = Allowed { origin: allowed_origin.clone(), credentials };
        let mut learned = self.learned.lock();
        if learned.len() >= LEARNED_MAX && !learned.contains_key(&origin) {
            learned.clear();
        }
        learned.insert(origin, allowed);
    }

    fn allowed(&self, origin: &HeaderValue) -> Option<Allowed> {
        if self.settings.allows(origin) {
            let credentials = self.settings.credentials;
            return Some(Allowed { origin: origin.clone(), credentials });
        }
        self.learned.lock().get(origin).cloned()
    }
}

impl Allowed {
    fn write(self, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        headers.append(VARY, HeaderValue::from_static("Origin"));
        if self.credentials {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: HeaderValue = HeaderValue::from_static("https://shop.example");

    fn refused(cors: &Cors, origin: HeaderValue) -> HeaderMap {
        let mut response = Response::new(());
        response.extensions_mut().insert(Refusal);
        cors.finish(origin, &mut response);
        response.into_parts().0.headers
    }

    fn answered(cors: &Cors, origin: HeaderValue, allows: &str) {
        let response = Response::builder()
            .header(ACCESS_CONTROL_ALLOW_ORIGIN, allows)
            .header(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
        cors.finish(origin, &mut response.body(()).unwrap());
    }

    #[test]
    fn a_refusal_allows_what_the_service_allowed_before() {
        let cors = Cors::new(&config::Cors::default());
        assert!(refused(&cors, SHOP).is_empty());
        answered(&cors, SHOP, "https://shop.example");
        let headers = refused(&cors, SHOP);
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], SHOP);
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_CREDENTIALS], "true");
        assert_eq!(headers[VARY], "Origin");
        assert!(refused(&cors, HeaderValue::from_static("https://other.example")).is_empty());
    }

    #[test]
    fn an_origin_that_the_service_did_not_name_is_not_learned() {
        let cors = Cors::new(&config::Cors::default());
        answered(&cors, HeaderValue::from_static("https://evil.example"), "https://shop.example");
        assert!(refused(&cors, HeaderValue::from_static("https://evil.example")).is_empty());
    }

    #[test]
    fn a_setting_says_it_before_anything_was_seen() {
        let cors = Cors::new(&toml::from_str("origins = [\"https://shop.example\"]").unwrap());
        let headers = refused(&cors, SHOP);
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], SHOP);
        assert!(!headers.contains_key(ACCESS_CONTROL_ALLOW_CREDENTIALS));
    }

    #[test]
    fn what_is_learned_is_bounded() {
        let cors = Cors::new(&config::Cors::default());
        for number in 0..=LEARNED_MAX {
            let origin: HeaderValue = format!("https://{number}.example").parse().unwrap();
            answered(&cors, origin, "*");
        }
        assert!(cors.learned.lock().len() <= LEARNED_MAX);
    }
}
