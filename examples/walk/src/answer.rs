//! One answer of a service, however it was asked.

use serde_json::Value;

/// A response: by curl, or in process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Such as 201.
    pub status: u16,
    /// Such as `Created`.
    pub reason: String,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// The body as text.
    pub body: String,
}

impl Answer {
    /// Reads what `curl -i` prints.
    pub fn of_curl(printed: &str) -> Result<Self, String> {
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

    pub(crate) async fn of_client(response: reqwest::Response) -> Self {
        let status = response.status();
        let text = |value: &reqwest::header::HeaderValue| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        let headers = response.headers().iter();
        Self {
            status: status.as_u16(),
            reason: status.canonical_reason().unwrap_or_default().to_owned(),
            headers: headers.map(|(name, value)| (name.to_string(), text(value))).collect(),
            body: response.text().await.expect("the body arrives whole"),
        }
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(it, _)| it.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Whether it is marked as a replay.
    pub fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_curl_prints_is_read() {
        let printed = "HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\nX-A: b: c\r\n\r\nhi\r\n";
        let answer = Answer::of_curl(printed).unwrap();
        assert_eq!((answer.status, answer.reason.as_str()), (201, "Created"));
        assert_eq!(answer.header("Content-Type"), Some("text/plain"));
        assert_eq!(answer.header("x-a"), Some("b: c"));
        assert_eq!(answer.body, "hi\r\n");
    }

    #[test]
    fn what_is_no_response_is_told() {
        assert!(Answer::of_curl("").is_err());
        assert!(Answer::of_curl("{\"id\":1}").unwrap_err().contains("curl -i"));
        assert!(Answer::of_curl("HTTP/1.1 many\r\n\r\n").is_err());
    }
}
