//! A response of a service under test.

use serde_json::Value;

/// A response that curl or the HTTP client received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Status code, such as 201.
    pub status: u16,
    /// Reason phrase, such as `Created`.
    pub reason: String,
    /// Names, in lower case, and values, in the order of the response.
    pub headers: Vec<(String, String)>,
    /// The body as text.
    pub body: String,
}

impl Response {
    /// Parses the output of `curl -i`.
    pub fn from_curl(printed: &str) -> Result<Self, String> {
        let unreadable = || format!("not an HTTP response (use curl -i):\n{printed}");
        let (head, body) = printed.split_once("\r\n\r\n").ok_or_else(unreadable)?;
        let mut lines = head.lines();
        let mut status_line = lines.next().unwrap_or_default().splitn(3, ' ').skip(1);
        let status = status_line.next().and_then(|status| status.parse().ok());
        let headers = lines.filter_map(|line| line.split_once(": "));
        Ok(Self {
            status: status.ok_or_else(unreadable)?,
            reason: status_line.next().unwrap_or_default().trim().to_owned(),
            headers: headers.map(|(name, value)| (name.to_lowercase(), value.into())).collect(),
            body: body.to_owned(),
        })
    }

    pub(crate) async fn from_reqwest(response: reqwest::Response) -> Self {
        let status = response.status();
        let text = |value: &reqwest::header::HeaderValue| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        let headers = response.headers().iter();
        Self {
            status: status.as_u16(),
            reason: status.canonical_reason().unwrap_or_default().to_owned(),
            headers: headers.map(|(name, value)| (name.to_string(), text(value))).collect(),
            body: response.text().await.expect("a complete body"),
        }
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(it, _)| it.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns true if the response is marked as a replay.
    pub fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The body as JSON; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curl_output_is_parsed() {
        let printed = "HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\nX-A: b: c\r\n\r\nhi\r\n";
        let response = Response::from_curl(printed).unwrap();
        assert_eq!((response.status, response.reason.as_str()), (201, "Created"));
        assert_eq!(response.header("Content-Type"), Some("text/plain"));
        assert_eq!(response.header("x-a"), Some("b: c"));
        assert_eq!(response.body, "hi\r\n");
    }

    #[test]
    fn output_that_is_not_a_response_is_an_error() {
        assert!(Response::from_curl("").is_err());
        assert!(Response::from_curl("{\"id\":1}").unwrap_err().contains("curl -i"));
        assert!(Response::from_curl("HTTP/1.1 many\r\n\r\n").is_err());
    }
}
