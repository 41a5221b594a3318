//! Writes the idempotent function.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{AttrStyle, Error, Expr, Ident, ItemFn, Result};

use crate::function::{Argument, Form, Function};
use crate::settings::{FailureRule, Meaning, Settings, Tenant};

/// Returns the function that begins the intent and runs the original block.
pub(crate) fn expand(settings: &Settings, function: &Function) -> Result<TokenStream> {
    let engine = Engine::find(settings, function)?;
    let call = call(settings, function, &engine)?;
    let body = match &function.form {
        Form::Async => call,
        Form::Boxed(_) => quote!(::std::boxed::Box::pin(async move { #call })),
    };
    Ok(with_body(&function.item, &body))
}

/// Returns the signature for callers with another body.
pub(crate) fn with_body(item: &ItemFn, body: &TokenStream) -> TokenStream {
    let ItemFn { attrs, vis, sig, .. } = item;
    let outer = attrs.iter().filter(|it| matches!(it.style, AttrStyle::Outer));
    let inner = attrs.iter().filter(|it| matches!(it.style, AttrStyle::Inner(_)));
    quote!(#(#outer)* #vis #sig { #(#inner)* #body })
}

/// Source of the engine.
struct Engine {
    expression: TokenStream,
    /// The engine's argument, if it is one.
    argument: Option<Ident>,
}

impl Engine {
    fn find(settings: &Settings, function: &Function) -> Result<Self> {
        if let Some(given) = &settings.engine {
            let argument = plain_name(given).and_then(|name| function.argument(&name.to_string()));
            let argument = argument.map(|argument| argument.ident.clone());
            return Ok(Self { expression: given.to_token_stream(), argument });
        }
        if let Some(Argument { ident, .. }) = function.argument("engine") {
            return Ok(Self { expression: quote!(#ident), argument: Some(ident.clone()) });
        }
        match function.item.sig.receiver() {
            Some(receiver) => {
                let this = &receiver.self_token;
                Ok(Self { expression: quote!(#this.engine), argument: None })
            }
            None => Err(Error::new(
                Span::call_site(),
                "the engine is missing: write `engine = …`, or take an argument `engine: &Engine`",
            )),
        }
    }
}

fn plain_name(expression: &Expr) -> Option<&Ident> {
    match expression {
        Expr::Path(path) => path.path.get_ident(),
        Expr::Reference(reference) => plain_name(&reference.expr),
        _ => None,
    }
}

fn call(settings: &Settings, function: &Function, engine: &Engine) -> Result<TokenStream> {
    let fingerprint = fingerprint(settings, function, engine)?;
    let patterns = function.arguments.iter().filter_map(|Argument { ident, pattern, .. }| {
        pattern.as_ref().map(|pattern| quote!(let #pattern = #ident;))
    });
    let (arguments, checked) = (local("arguments"), local("call"));
    let check = check(settings, engine, &arguments);
    let run = run(settings, function, engine, &checked);
    Ok(quote! {
        let #arguments = #fingerprint;
        #(#patterns)*
        let #checked = #check;
        #run
    })
}

/// The fingerprint of the compared arguments, by name.
fn fingerprint(settings: &Settings, function: &Function, engine: &Engine) -> Result<TokenStream> {
    let stranger = settings.skip.iter().find(|it| function.argument(&it.to_string()).is_none());
    if let Some(stranger) = stranger {
        let message = format!("there is no argument named `{stranger}` to skip");
        return Err(Error::new(stranger.span(), message));
    }
    let counts = |Argument { ident, .. }: &&Argument| {
        Some(ident) != engine.argument.as_ref() && !settings.skip.contains(ident)
    };
    let members = function.arguments.iter().filter(counts).map(|argument| {
        let Argument { ident, name, pattern, .. } = argument;
        let span = pattern.as_ref().map_or(ident.span(), Spanned::span);
        // The compiler reports an error of the cast at the argument.
        quote_spanned!(located(span)=> (#name, &#ident as &dyn ::onceward::__private::Argument))
    });
    Ok(quote!(::onceward::__private::fingerprint(&[#(#members),*])))
}

/// Engine and intent, evaluated before the arguments move into the work.
fn check(settings: &Settings, engine: &Engine, arguments: &Ident) -> TokenStream {
    let Settings { operation, key, caller, ttl, .. } = settings;
    let engine = &engine.expression;
    let anyone = || quote!(::onceward::__private::ANYONE);
    let text = |expression: &Expr| {
        let at = located(expression.span());
        quote_spanned!(at=> ::core::convert::AsRef::<str>::as_ref(&(#expression)))
    };
    let key = quote_spanned!(located(key.span())=> ::onceward::ToKey::to_key(&(#key)));
    let tenant = match &settings.tenant {
        Tenant::Of(tenant) => text(tenant),
        Tenant::Single => anyone(),
    };
    let caller = caller.as_ref().map_or_else(anyone, text);
    let ttl = match ttl.map(|ttl| ttl.as_secs()) {
        Some(secs) => {
            quote!(::core::option::Option::Some(::core::time::Duration::from_secs(#secs)))
        }
        None => quote!(::core::option::Option::None),
    };
    quote! {
        ::onceward::__private::CallSettings {
            engine: &(#engine),
            ttl: #ttl,
            operation: #operation,
            tenant: #tenant,
            caller: #caller,
            key: #key,
            fingerprint: #arguments,
        }
        .check()
    }
}

/// Runs the work, in its own task or in the caller's future.
fn run(settings: &Settings, function: &Function, engine: &Engine, checked: &Ident) -> TokenStream {
    let run = if settings.inline || function.borrows(engine.argument.as_ref()) {
        quote!(run_inline)
    } else {
        quote!(run)
    };
    // The compiler reports missing traits of the result at its type.
    let output = &function.output;
    let at = located(output.span());
    let (work, classify) = (work(function), classify(&settings.failures, at));
    quote_spanned! {at=>
        ::onceward::__private::#run::<#output, _, _>(#checked, #work, #classify).await
    }
}

/// The original block, as a function of the grant.
fn work(function: &Function) -> TokenStream {
    let Function { item, output, .. } = function;
    let block = &item.block;
    let grant = match &function.grant {
        Some(grant) => quote!(#grant),
        None => quote!(_: ::onceward::Grant),
    };
    let future = local("future");
    match &function.form {
        Form::Async => quote!(async move |#grant| -> #output #block),
        Form::Boxed(boxed) => quote! {
            async move |#grant| -> #output {
                #[allow(unused_variables, reason = "arguments that only the attribute uses")]
                let #future: #boxed = #block;
                #future.await
            }
        },
    }
}

/// Matches an error with the patterns.
fn classify(rules: &[FailureRule], at: Span) -> TokenStream {
    if rules.is_empty() {
        return quote_spanned!(at=> |_| ::core::option::Option::None);
    }
    let arms = rules.iter().map(|FailureRule { meaning, pattern, guard }| {
        let disposition = match meaning {
            Meaning::Keep => quote!(Keep),
            Meaning::Release => quote!(Release),
            Meaning::Unknown => quote!(Unknown),
        };
        let guard = guard.iter();
        quote! {
            #pattern #(if #guard)* => ::core::option::Option::Some(::onceward::Disposition::#disposition),
        }
    });
    let error = local("error");
    quote_spanned! {at=>
        |#error| match #error {
            #(#arms)*
            #[allow(unreachable_patterns, reason = "the rules may cover every error")]
            _ => ::core::option::Option::None,
        }
    }
}

/// A name that cannot collide with the function's own names.
fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// A span that reports errors in the user's code, while lints treat the code as the macro's.
fn located(span: Span) -> Span {
    Span::mixed_site().located_at(span)
}
