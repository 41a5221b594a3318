//! Fields of `application/x-www-form-urlencoded` bodies.

/// One field of a form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Returns the fields of a form, sorted by name. The order of equal names stays, because it may
/// matter.
///
/// `None` if the body is not a clean form; it is then compared as bytes. So is JSON or XML that is
/// sent as a form, as `curl -d` does: there, `+` is not a blank.
pub(crate) fn fields(body: &[u8]) -> Option<Vec<Field>> {
    if matches!(body.trim_ascii_start().first(), Some(b'{' | b'[' | b'"' | b'<')) {
        return None;
    }
    let pairs = body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    let mut fields = pairs.map(field).collect::<Option<Vec<_>>>()?;
    fields.sort_by(|one, two| one.name.cmp(&two.name));
    Some(fields)
}

fn field(pair: &[u8]) -> Option<Field> {
    let end = pair.iter().position(|byte| *byte == b'=');
    let (name, value) = end.map_or((pair, &b""[..]), |end| (&pair[..end], &pair[end + 1..]));
    Some(Field { name: decoded(name)?, value: decoded(value)? })
}

/// Decodes `+` and percent escapes. `None` for a percent sign without two hexadecimal digits:
/// servers disagree on its meaning.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => digit(bytes.next()?)? << 4 | digit(bytes.next()?)?,
            byte => *byte,
        });
    }
    Some(out)
}

fn digit(byte: &u8) -> Option<u8> {
    char::from(*byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> Option<Vec<(String, String)>> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Some(
            fields(body.as_bytes())?
                .into_iter()
                .map(|it| (text(it.name), text(it.value)))
                .collect(),
        )
    }

    #[test]
    fn blanks_escapes_and_order_have_one_meaning() {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            of("b=2&a=x+y&&c").unwrap(),
            [field("a", "x y"), field("b", "2"), field("c", "")]
        );
        assert_eq!(of("a=%78%20y"), of("a=x+y"));
        assert_eq!(of("a=1&a=2").unwrap(), [field("a", "1"), field("a", "2")]);
        assert_eq!(of("a=b=c").unwrap(), [field("a", "b=c")]);
    }

    #[test]
    fn a_broken_escape_and_json_sent_as_a_form_are_not_forms() {
        for body in [r#"{"a":"x+y"}"#, " [1]", "<a/>", "a=%", "a=%4", "a=%zz", "%=1"] {
            assert_eq!(of(body), None, "{body}");
        }
    }
}
