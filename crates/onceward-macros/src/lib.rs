//! `#[idempotent]`: run an async function once per intent.

mod expand;
mod function;
mod settings;
mod ttl;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemFn, Result, TraitItemFn};

use crate::function::Function;
use crate::settings::Settings;

/// Runs an async function once per intent, and gives every retry the first result.
///
/// The arguments are what is asked for: the same key with other arguments is refused. The
/// result is stored by serde and replayed, an error that is kept as much as a value.
///
/// ```
/// # use std::sync::Arc;
/// use onceward::{Engine, Grant, MemoryStore, Refused, idempotent};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, Serialize, Deserialize, thiserror::Error)]
/// enum PaymentError {
///     #[error("declined")]
///     Declined,
///     #[error("the provider is busy")]
///     Busy,
///     #[error("the provider did not answer")]
///     TimedOut,
///     #[error(transparent)]
///     #[serde(skip)] // a refusal is never the outcome, so it is never stored
///     Refused(#[from] Refused),
/// }
///
/// #[derive(Serialize)]
/// struct Charge {
///     tenant: String,
///     key: String,
///     cents: u32,
/// }
///
/// struct Cashier {
///     engine: Engine,
/// }
///
/// impl Cashier {
///     #[idempotent(
///         operation = "payments.create",
///         key = request.key,
///         tenant = request.tenant,
///         ttl = "7d",
///         keep(PaymentError::Declined),
///         release(PaymentError::Busy),
///         unknown(PaymentError::TimedOut)
///     )]
///     async fn charge(&self, request: &Charge, #[grant] grant: Grant) -> Result<u32, PaymentError> {
///         // … hand the provider `grant.downstream_key()`, the same on each attempt …
///         # let _ = grant;
///         Ok(request.cents)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), PaymentError> {
/// let cashier = Cashier { engine: Engine::new(Arc::new(MemoryStore::new())) };
/// let mut request = Charge { tenant: "acme".into(), key: "order-17".into(), cents: 4200 };
/// assert_eq!(cashier.charge(&request).await?, 4200); // the grant is not the caller's business
/// assert_eq!(cashier.charge(&request).await?, 4200); // not charged again
///
/// request.cents = 9900;
/// let refused = cashier.charge(&request).await;
/// assert!(matches!(refused, Err(PaymentError::Refused(it)) if !it.is_retryable()));
/// # Ok(())
/// # }
/// ```
///
/// # Settings
///
/// | setting | meaning |
/// |---|---|
/// | `operation = "…"` | required: what is done, a name that does not change |
/// | `key = …` | required: the caller's name for the intent, an expression over the arguments; anything that is `ToKey` |
/// | `tenant = …` | whose key it is, `AsRef<str>`; required, or else `single_tenant` |
/// | `single_tenant` | there are no tenants |
/// | `caller = …` | who sent it, `AsRef<str>`; without it a tenant's callers share their keys |
/// | `ttl = "24h"` | how long the outcome is replayed, in `s`, `m` (minutes), `h`, `d`; else as the engine's policy says |
/// | `engine = …` | where the engine is; else the argument `engine`, else `self.engine` |
/// | `skip(a, b)` | arguments that do not say what is asked for, such as a clock or a pool |
/// | `keep(…)`, `release(…)`, `unknown(…)` | patterns over the error, with `if` guards: it is the outcome, nothing happened, nobody knows; the first that fits counts, and what none fits the policy's `failures` decides |
/// | `inline` | run as a part of the caller's future |
///
/// An argument marked `#[grant]` is not the caller's: the function gets its `Grant` there, with
/// the operation's id, the fence and the downstream key.
///
/// # What must hold
///
/// - The function is async, free or a method, in an `impl` of a trait too. Under
///   `#[async_trait]` it works as well.
/// - It returns `Result<T, E>`. `T` and `E` are `Serialize` and `DeserializeOwned`, and `E` is
///   `From<onceward::Refused>`.
/// - Arguments are `Serialize`, but for `self`, the engine, the grant and what is skipped.
///   They count by name and not by order, so renaming one makes retries across the release
///   mismatch. One that is taken apart by a pattern counts as a whole, by its position.
///
/// # Where it runs
///
/// A function that owns its arguments runs in a task of its own: a caller that goes away does
/// not cancel it, and a panic is an unknown outcome. An `engine: &Engine` that only the
/// attribute uses does not count as borrowed.
///
/// A function that borrows (`&self`, a reference, a lifetime) runs as a part of its caller's
/// future: if that is dropped, so is the work, and the outcome is **unknown**. Behind HTTP,
/// where callers hang up, prefer `self: Arc<Self>` and owned arguments. Type parameters of a
/// function that owns its arguments must be `Send + 'static`, or else the function `inline`.
///
/// # Errors of functions inside
///
/// If the function calls another guarded one and passes its refusal on, say what that means:
/// the policy would keep it, and what is kept must be written by serde.
/// `release(Error::Refused(it) if it.is_retryable())` is right where nothing else has happened
/// by then, `unknown(Error::Refused(_))` always.
#[proc_macro_attribute]
pub fn idempotent(
    settings: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    match parse(item.into()) {
        Ok(item) => guarded(settings.into(), item),
        Err(error) => error.into_compile_error(),
    }
    .into()
}

fn parse(item: TokenStream) -> Result<ItemFn> {
    syn::parse2(item.clone()).map_err(|error| match syn::parse2::<TraitItemFn>(item) {
        Ok(declared) => Error::new_spanned(
            declared.sig,
            "there is nothing to run here: put `idempotent` on the implementation",
        ),
        Err(_) => error,
    })
}

fn guarded(settings: TokenStream, item: ItemFn) -> TokenStream {
    let expanded = syn::parse2::<Settings>(settings)
        .and_then(|settings| expand::expand(&settings, &Function::new(item.clone())?));
    expanded.unwrap_or_else(|error| {
        let (error, signature) = (error.into_compile_error(), signature_of(item));
        quote!(#error #signature)
    })
}

/// The function without its block, so that one mistake is not reported at every caller.
fn signature_of(mut item: ItemFn) -> TokenStream {
    let _known = function::take_grant(&mut item);
    // Never runs: the mistake stops the build.
    let body = expand::with_body(&item, &quote!(::core::unreachable!()));
    quote!(#[allow(unused, reason = "its attribute has a mistake")] #body)
}
