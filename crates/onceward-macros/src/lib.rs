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
/// The arguments are the request: the same key with other arguments is refused. The result, a value or
/// a stored error, is serialized with serde and replayed.
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
///         // … pass `grant.downstream_key()` to the provider, the same on each attempt …
///         # let _ = grant;
///         Ok(request.cents)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), PaymentError> {
/// let cashier = Cashier { engine: Engine::new(Arc::new(MemoryStore::new())) };
/// let mut request = Charge { tenant: "acme".into(), key: "order-17".into(), cents: 4200 };
/// assert_eq!(cashier.charge(&request).await?, 4200); // the caller passes no grant
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
/// | `operation = "…"` | required: the name of the operation, which must not change |
/// | `key = …` | required: the idempotency key, an expression over the arguments of a type that is `ToKey` |
/// | `tenant = …` | the tenant of the key, `AsRef<str>`; required, or else `single_tenant` |
/// | `single_tenant` | there are no tenants |
/// | `caller = …` | the caller of the key, `AsRef<str>`; without it a tenant's callers share their keys |
/// | `ttl = "24h"` | how long the outcome is replayed, in `s`, `m` (minutes), `h`, `d`; default: the engine's policy |
/// | `engine = …` | the engine; default: the argument `engine`, else `self.engine` |
/// | `skip(a, b)` | arguments that are not part of the request, such as a clock or a pool |
/// | `keep(…)`, `release(…)`, `unknown(…)` | patterns over the error, with `if` guards: it is the outcome, nothing happened, it is not known what happened. The first match applies, without one the policy's `failures` |
/// | `inline` | runs the function in the caller's future |
///
/// Callers do not pass an argument marked `#[grant]`: it is the function's `Grant`, with the
/// operation's id, the fence and the downstream key.
///
/// # Requirements
///
/// - The function is async: a free function, a method, or a method in the `impl` of a trait, with or
///   without `#[async_trait]`.
/// - It returns `Result<T, E>`. `T` and `E` are `Serialize` and `DeserializeOwned`, and `E` is
///   `From<onceward::Refused>`.
/// - Arguments are `Serialize`, except `self`, the engine, the grant and skipped ones. They are compared
///   by name, not by order, so after renaming one, retries of earlier calls are mismatches. An argument
///   that is a pattern is compared as a whole, by its position.
///
/// # Where it runs
///
/// A function that owns its arguments runs in its own task: dropping the caller's future does not
/// cancel it, and a panic is an unknown outcome. An `engine: &Engine` that only the attribute uses does
/// not count as borrowed.
///
/// A function that borrows (`&self`, a reference, a lifetime) runs in its caller's future: if that is
/// dropped, so is the work, and the outcome is **unknown**. Behind HTTP, where clients disconnect,
/// prefer `self: Arc<Self>` and owned arguments. Type parameters of a function that owns its arguments
/// must be `Send + 'static`, or else the function must be `inline`.
///
/// # Errors of nested functions
///
/// If the function calls another idempotent function and returns its refusal, classify that error: the
/// policy would store it, and a stored error must be `Serialize`.
/// `release(Error::Refused(it) if it.is_retryable())` is right if nothing has happened before, and
/// `unknown(Error::Refused(_))` is always right.
#[proc_macro_attribute]
pub fn idempotent(
    settings: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    match parse(item.into()) {
        Ok(item) => expanded(settings.into(), item),
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

fn expanded(settings: TokenStream, item: ItemFn) -> TokenStream {
    let expanded = syn::parse2::<Settings>(settings)
        .and_then(|settings| expand::expand(&settings, &Function::new(item.clone())?));
    expanded.unwrap_or_else(|error| {
        let (error, signature) = (error.into_compile_error(), signature_of(item));
        quote!(#error #signature)
    })
}

/// The function without its block, so that an error is not reported again at every caller.
fn signature_of(mut item: ItemFn) -> TokenStream {
    let _known = function::take_grant(&mut item);
    // Never runs: the error stops the build.
    let body = expand::with_body(&item, &quote!(::core::unreachable!()));
    quote!(#[allow(unused, reason = "its attribute has a mistake")] #body)
}
