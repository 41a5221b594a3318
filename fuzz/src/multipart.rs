//! Target: multipart forms.

use onceward_http::testing::{MultipartPart, parts};

pub(crate) const SEEDS: &[&[u8]] = &[
    b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b\r\ncontent-disposition: form-data; name=\"f\"; filename=\"x.txt\"\r\nContent-Type: text/plain\r\n\r\nline\r\nline\r\n--b--\r\n",
    b"--x-y\r\nContent-Disposition:form-data;name=a;filename=b;filename*=utf-8''c\r\nContent-Length: 0\r\nContent-Transfer-Encoding: binary\r\n\r\n\r\n--x-y--",
    b"--b--\r\n",
    b"--b\r\nContent-Disposition: form-data; name=\"a\\\"b\"\r\n\r\n--b\r\n\r\n--b--\r\n",
];

pub(crate) const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"--",
    b"\r\n--b",
    b"\r\n--b--",
    b"--b\r\n",
    b"\r\n--b\r\n",
    b"Content-Disposition: form-data; name=\"a\"\r\n",
    b"Content-Type: a/b\r\n",
    b"Content-Length: 1\r\n",
    b"Content-Transfer-Encoding: 8bit\r\n",
    b"; name=",
    b"; filename=",
    b"; filename*=",
    b"\"",
    b"\\",
    b"\\\"",
    b";",
    b"=",
    b":",
    b" ",
    b"\t",
    b"\r",
    b"\n",
    b"\0",
];

/// Parts that are written with another boundary are the same parts.
pub fn multipart(body: &[u8]) {
    let boundary = boundary(body);
    if let Ok(found) = parts(body, &boundary) {
        let fresh = fresh_boundary(body);
        let written = write(&found, &fresh);
        assert_eq!(parts(&written, &fresh).as_ref(), Ok(&found));
    }
}

/// The boundary in the first line, as a header would have it.
fn boundary(body: &[u8]) -> String {
    let line = body.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = line.strip_prefix(b"--").unwrap_or(b"b");
    let line = line.strip_suffix(b"--").unwrap_or(line);
    String::from_utf8_lossy(line).trim_end().to_owned()
}

fn fresh_boundary(body: &[u8]) -> String {
    let absent =
        |boundary: &String| !body.windows(boundary.len()).any(|it| it == boundary.as_bytes());
    (0..).map(|number| format!("fresh-{number}")).find(absent).expect("one of so many is new")
}

fn write(parts: &[MultipartPart<'_>], boundary: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for part in parts {
        body.extend(format!("--{boundary}\r\n").bytes());
        write_part(part, &mut body);
        body.extend(b"\r\n");
    }
    body.extend(format!("--{boundary}--\r\n").bytes());
    body
}

fn write_part(part: &MultipartPart<'_>, body: &mut Vec<u8>) {
    body.extend(b"Content-Disposition: form-data");
    let parameters = [
        ("name", Some(part.name)),
        ("filename", part.filename),
        ("filename*", part.filename_extended),
    ];
    for (name, value) in parameters {
        if let Some(value) = value {
            body.extend(format!("; {name}=\"").bytes());
            body.extend(value);
            body.push(b'"');
        }
    }
    if let Some(content_type) = part.content_type {
        body.extend(b"\r\nContent-Type: ");
        body.extend(content_type);
    }
    body.extend(b"\r\n\r\n");
    body.extend(part.bytes);
}
