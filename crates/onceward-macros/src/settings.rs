//! The settings in `#[idempotent(…)]`.

use std::time::Duration;

use proc_macro2::Span;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, LitStr, Pat, Result, Token, parenthesized};

use crate::ttl;

/// The settings of one function, complete and checked.
pub(crate) struct Settings {
    pub(crate) operation: LitStr,
    pub(crate) key: Expr,
    pub(crate) tenant: Tenant,
    pub(crate) caller: Option<Expr>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) engine: Option<Expr>,
    pub(crate) skip: Vec<Ident>,
    pub(crate) inline: bool,
    pub(crate) failures: Vec<FailureRule>,
}

/// The tenant.
pub(crate) enum Tenant {
    Of(Expr),
    Single,
}

/// Classification of the errors that a pattern matches.
pub(crate) struct FailureRule {
    pub(crate) meaning: Meaning,
    pub(crate) pattern: Pat,
    pub(crate) guard: Option<Expr>,
}

/// Meaning of an error for the effect.
#[derive(Clone, Copy)]
pub(crate) enum Meaning {
    Keep,
    Release,
    Unknown,
}

/// One entry of the attribute.
enum Setting {
    Operation(LitStr),
    Key(Expr),
    Tenant(Expr),
    SingleTenant,
    Caller(Expr),
    Ttl(Duration),
    Engine(Expr),
    Skip(Vec<Ident>),
    Inline,
    Failures(Vec<FailureRule>),
}

/// Longest part of a scope, the same as in the core.
const OPERATION_BYTES_MAX: usize = 255;

const KNOWN: &str = "operation, key, tenant, single_tenant, caller, ttl, engine, skip(..), inline, \
                     keep(..), release(..), unknown(..)";

impl Parse for Settings {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut draft = Draft::default();
        while !input.is_empty() {
            let name = input.call(Ident::parse_any)?;
            let setting = Setting::parse(&name, input)?;
            draft.set(&name, setting)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        draft.complete()
    }
}

impl Setting {
    fn parse(name: &Ident, input: ParseStream<'_>) -> Result<Self> {
        Ok(match name.to_string().as_str() {
            "operation" => Self::Operation(operation(value(input)?)?),
            "key" => Self::Key(value(input)?),
            "tenant" => Self::Tenant(value(input)?),
            "single_tenant" => Self::SingleTenant,
            "caller" => Self::Caller(value(input)?),
            "ttl" => Self::Ttl(time(&value(input)?)?),
            "engine" => Self::Engine(value(input)?),
            "skip" => Self::Skip(list(input)?.collect()),
            "inline" => Self::Inline,
            "keep" => Self::Failures(rules(name, Meaning::Keep, input)?),
            "release" => Self::Failures(rules(name, Meaning::Release, input)?),
            "unknown" => Self::Failures(rules(name, Meaning::Unknown, input)?),
            other => {
                let message = format!("`{other}` is not a setting of `idempotent`; it has {KNOWN}");
                return Err(Error::new(name.span(), message));
            }
        })
    }
}

fn value<T: Parse>(input: ParseStream<'_>) -> Result<T> {
    input.parse::<Token![=]>()?;
    input.parse()
}

fn list<T: Parse>(input: ParseStream<'_>) -> Result<impl Iterator<Item = T>> {
    let content;
    parenthesized!(content in input);
    Ok(Punctuated::<T, Token![,]>::parse_terminated(&content)?.into_iter())
}

fn operation(name: LitStr) -> Result<LitStr> {
    let text = name.value();
    let problem = if text.is_empty() {
        "an operation needs a name, such as \"payments.create\""
    } else if text.len() > OPERATION_BYTES_MAX {
        "an operation's name has at most 255 bytes"
    } else if text.chars().any(char::is_control) {
        "an operation's name has no control characters"
    } else {
        return Ok(name);
    };
    Err(Error::new(name.span(), problem))
}

fn time(text: &LitStr) -> Result<Duration> {
    ttl::parse(&text.value()).map_err(|problem| Error::new(text.span(), problem))
}

fn rules(name: &Ident, meaning: Meaning, input: ParseStream<'_>) -> Result<Vec<FailureRule>> {
    let rule = |Shape { pattern, guard }| FailureRule { meaning, pattern, guard };
    let rules: Vec<_> = list(input)?.map(rule).collect();
    if rules.is_empty() {
        let message = format!("`{name}(..)` takes patterns over the error type, at least one");
        return Err(Error::new(name.span(), message));
    }
    Ok(rules)
}

/// The pattern of a match arm.
struct Shape {
    pattern: Pat,
    guard: Option<Expr>,
}

impl Parse for Shape {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let pattern = Pat::parse_multi_with_leading_vert(input)?;
        let guard = input.parse::<Option<Token![if]>>()?.map(|_| input.parse()).transpose()?;
        Ok(Self { pattern, guard })
    }
}

/// The settings that were parsed so far.
#[derive(Default)]
struct Draft {
    operation: Option<LitStr>,
    key: Option<Expr>,
    tenant: Option<Tenant>,
    caller: Option<Expr>,
    ttl: Option<Duration>,
    engine: Option<Expr>,
    skip: Vec<Ident>,
    inline: Option<()>,
    failures: Vec<FailureRule>,
}

impl Draft {
    fn set(&mut self, name: &Ident, setting: Setting) -> Result<()> {
        match setting {
            Setting::Operation(operation) => once(&mut self.operation, operation, name),
            Setting::Key(key) => once(&mut self.key, key, name),
            Setting::Tenant(tenant) => once(&mut self.tenant, Tenant::Of(tenant), name),
            Setting::SingleTenant => once(&mut self.tenant, Tenant::Single, name),
            Setting::Caller(caller) => once(&mut self.caller, caller, name),
            Setting::Ttl(ttl) => once(&mut self.ttl, ttl, name),
            Setting::Engine(engine) => once(&mut self.engine, engine, name),
            Setting::Inline => once(&mut self.inline, (), name),
            Setting::Skip(names) => {
                self.skip.extend(names);
                Ok(())
            }
            // In source order: the first match applies.
            Setting::Failures(rules) => {
                self.failures.extend(rules);
                Ok(())
            }
        }
    }

    /// Reports all missing settings at once.
    fn complete(self) -> Result<Settings> {
        let Self { operation, key, tenant, caller, ttl, engine, skip, inline, failures } = self;
        let missing = [
            (operation.is_none(), "`operation = \"…\"` is missing: the name of what is done once"),
            (key.is_none(), "`key = …` is missing: the caller's name for the intent"),
            (
                tenant.is_none(),
                "`tenant = …` is missing: whose key it is; without tenants write `single_tenant`",
            ),
        ];
        let missing: Vec<_> = missing.into_iter().filter(|it| it.0).map(|it| it.1).collect();
        match (operation, key, tenant) {
            (Some(operation), Some(key), Some(tenant)) => {
                let inline = inline.is_some();
                Ok(Settings { operation, key, tenant, caller, ttl, engine, skip, inline, failures })
            }
            _ => Err(Error::new(Span::call_site(), missing.join("\n"))),
        }
    }
}

fn once<T>(slot: &mut Option<T>, value: T, name: &Ident) -> Result<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) if name.to_string().ends_with("tenant") => {
            Err(Error::new(name.span(), "give one of `tenant` and `single_tenant`, once"))
        }
        Some(_) => Err(Error::new(name.span(), format!("`{name}` is given twice"))),
    }
}
