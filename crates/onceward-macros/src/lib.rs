//! `#[idempotent]`: run an async function once per intent.

mod expand;
mod function;
mod settings;
mod ttl;

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Error, ItemFn, Result, TraitItemFn};

use crate::function::Function;
use crate::settings::Settings;

/// TODO
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
        Err(_) if error.span().source_text().is_none() => {
            Error::new(Span::call_site(), "`idempotent` guards async functions")
        }
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
    let body = expand::with_body(&item, &quote!(::core::unimplemented!()));
    quote!(#[allow(unused, reason = "its attribute has a mistake")] #body)
}
