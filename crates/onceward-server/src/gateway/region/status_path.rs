//! Paths of status pages, which name the region that has the operation:
//! `/onceward/eu/operations/{id}`.

use http::Uri;
use http::uri::PathAndQuery;

/// Recognises the paths of status pages.
pub(super) struct StatusPaths {
    /// The prefix of all regions, such as `/onceward`.
    prefix: String,
    own: Box<str>,
}

const OPERATIONS: &str = "/operations/";

impl StatusPaths {
    pub(super) fn new(prefix: &str, own: &str) -> Self {
        Self { prefix: prefix.to_owned(), own: own.into() }
    }

    /// Returns the region that the path of a status page names.
    pub(super) fn region<'p>(&self, path: &'p str) -> Option<&'p str> {
        let rest = path.strip_prefix(&*self.prefix)?.strip_prefix('/')?;
        let (region, page) = rest.split_at_checked(rest.find('/')?)?;
        page.starts_with(OPERATIONS).then_some(region)
    }

    /// Adds the own region to the path of a status page that names none.
    pub(super) fn complete(&self, uri: &mut Uri) {
        let Some(page) = uri.path().strip_prefix(&*self.prefix) else { return };
        if !page.starts_with(OPERATIONS) {
            return;
        }
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let path = format!("{}/{}{page}{query}", self.prefix, self.own);
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = PathAndQuery::try_from(path).ok();
        if let Ok(completed) = Uri::from_parts(parts) {
            *uri = completed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_page_names_its_region_or_is_of_this_one() {
        let paths = StatusPaths::new("/onceward", "eu");
        assert_eq!(paths.region("/onceward/us/operations/7/result"), Some("us"));
        for other in ["/onceward/operations/7", "/us/operations/7", "/onceward/us/7", "/", ""] {
            assert_eq!(paths.region(other), None, "{other}");
        }
        let completed = |text: &str| {
            let mut uri: Uri = text.parse().unwrap();
            paths.complete(&mut uri);
            uri.to_string()
        };
        assert_eq!(completed("/onceward/operations/7?a=1"), "/onceward/eu/operations/7?a=1");
        let absolute = "https://shop.example/onceward/operations/7";
        assert_eq!(completed(absolute), "https://shop.example/onceward/eu/operations/7");
        for other in ["/onceward/us/operations/7", "/operations/7", "/onceward"] {
            assert_eq!(completed(other), other);
        }
    }
}
