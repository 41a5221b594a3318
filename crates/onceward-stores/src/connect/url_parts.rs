//! The parts of a URL after its scheme: path and options.

use super::ConnectError;

/// The URL after its scheme, not decoded yet.
pub(super) struct UrlParts {
    pub(super) scheme: &'static str,
    pub(super) rest: String,
    options: Vec<(String, String)>,
    /// A login ends with an `@`: what is taken for options may be a password with a `?` in it.
    options_may_be_a_password: bool,
}

impl UrlParts {
    pub(super) fn parse(scheme: &'static str, rest: &str) -> Result<Self, ConnectError> {
        if rest.contains('#') {
            let problem = "has no meaning: a `#` in a name is written `%23`";
            return Err(ConnectError::Part { scheme, part: "fragment (after `#`)", problem });
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let options = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Ok(Self {
            scheme,
            rest: rest.to_owned(),
            options: options.map(|(option, value)| (option.into(), value.into())).collect(),
            options_may_be_a_password: query.contains('@'),
        })
    }

    /// Sets the settings that the options name.
    pub(super) fn set(
        &self,
        settings: &mut [(&'static str, Setting<'_>)],
    ) -> Result<(), ConnectError> {
        for (index, (option, value)) in self.options.iter().enumerate() {
            let found = settings.iter_mut().find(|(name, _)| name == option);
            let Some((_, setting)) = found else {
                return Err(self.unknown(option, settings));
            };
            let wrong = |problem| ConnectError::Option {
                scheme: self.scheme,
                option: option.clone(),
                problem,
            };
            if self.options[..index].iter().any(|(earlier, _)| earlier == option) {
                return Err(wrong("is given twice"));
            }
            setting.set(value).map_err(wrong)?;
        }
        Ok(())
    }

    fn unknown(&self, option: &str, settings: &[(&'static str, Setting<'_>)]) -> ConnectError {
        let scheme = self.scheme;
        if self.options_may_be_a_password {
            let problem = "has an unknown option; a `?` in a password is written `%3F`";
            return ConnectError::Part { scheme, part: "query (after `?`)", problem };
        }
        let known: Vec<_> = settings.iter().map(|(name, _)| format!("`{name}`")).collect();
        let (option, known) = (option.to_owned(), known.join(", "));
        ConnectError::UnknownOption { scheme, option, known }
    }
}

/// A setting that an option sets.
pub(super) enum Setting<'a> {
    Wide(&'a mut u64),
    #[cfg(any(feature = "embedded", feature = "postgres", feature = "redis"))]
    Size(&'a mut usize),
    #[cfg(feature = "postgres")]
    Flag(&'a mut bool),
    #[cfg(any(feature = "postgres", feature = "redis"))]
    Time(&'a mut std::time::Duration),
    /// The text as it is, `%` escapes included.
    #[cfg(feature = "postgres")]
    Text(&'a mut Option<String>),
    /// Parses the text, or says what is wrong with it.
    #[cfg(feature = "redis")]
    Parsed(&'a mut dyn FnMut(&str) -> Result<(), &'static str>),
}

impl Setting<'_> {
    fn set(&mut self, value: &str) -> Result<(), &'static str> {
        match self {
            Self::Wide(target) => **target = number(value)?,
            #[cfg(any(feature = "embedded", feature = "postgres", feature = "redis"))]
            Self::Size(target) => {
                **target = usize::try_from(number(value)?).map_err(|_| TOO_LARGE)?;
            }
            #[cfg(feature = "postgres")]
            Self::Flag(target) => **target = flag(value)?,
            #[cfg(any(feature = "postgres", feature = "redis"))]
            Self::Time(target) => **target = time(value)?,
            #[cfg(feature = "postgres")]
            Self::Text(target) => **target = Some(value.to_owned()),
            #[cfg(feature = "redis")]
            Self::Parsed(take) => take(value)?,
        }
        Ok(())
    }
}

#[cfg(feature = "postgres")]
fn flag(value: &str) -> Result<bool, &'static str> {
    value.parse().map_err(|_| "must be `true` or `false`")
}

/// Parses a time. The unit is required, as a number alone is ambiguous.
#[cfg(any(feature = "postgres", feature = "redis"))]
fn time(value: &str) -> Result<std::time::Duration, &'static str> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    let read = |(unit, scale): (&str, u64)| {
        Some(value.strip_suffix(unit)?.parse::<u64>().ok()?.saturating_mul(scale))
    };
    let millis = units.into_iter().find_map(read);
    let wrong = "must be a time in `ms`, `s`, `m` or `h`, such as `500ms`";
    millis.map(std::time::Duration::from_millis).ok_or(wrong)
}

const TOO_LARGE: &str = "is too large";

fn number(value: &str) -> Result<u64, &'static str> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let unit = units.iter().find_map(|(unit, bits)| Some((value.strip_suffix(unit)?, *bits)));
    let (digits, bits) = unit.unwrap_or((value, 0));
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("must be a whole number, such as `65536` or `64KiB` (KiB, MiB or GiB)");
    }
    digits.parse::<u64>().ok().and_then(|it| it.checked_mul(1 << bits)).ok_or(TOO_LARGE)
}
