//! Parses the function under the attribute.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::ext::IdentExt as _;
use syn::visit::{self, Visit};
use syn::{
    AngleBracketedGenericArguments, Block, Error, FnArg, GenericArgument, Ident, ItemFn, Lifetime,
    ParenthesizedGenericArguments, Pat, PatType, Path, PathArguments, Result, ReturnType,
    Signature, Type, TypeBareFn, TypeParamBound,
};

/// An idempotent function: its signature for callers, and its arguments.
pub(crate) struct Function {
    /// The function as callers see it, without the grant; its block is the work.
    pub(crate) item: ItemFn,
    pub(crate) form: Form,
    /// The return type of the work.
    pub(crate) output: Type,
    pub(crate) arguments: Vec<Argument>,
    /// The argument for the grant.
    pub(crate) grant: Option<PatType>,
}

/// Form of the function.
pub(crate) enum Form {
    /// `async fn`.
    Async,
    /// Output of `#[async_trait]`: a boxed future of this type.
    Boxed(Box<Type>),
}

/// An argument that callers pass.
pub(crate) struct Argument {
    /// The name in the signature.
    pub(crate) ident: Ident,
    /// The name in the fingerprint.
    pub(crate) name: String,
    /// The pattern, if it is one.
    pub(crate) pattern: Option<Pat>,
    ty: Type,
}

impl Function {
    pub(crate) fn new(mut item: ItemFn) -> Result<Self> {
        let grant = take_grant(&mut item)?;
        let (form, output) = form(&item.sig)?;
        let arguments = name_arguments(&mut item.sig);
        Ok(Self { item, form, output, arguments, grant })
    }

    pub(crate) fn argument(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.ident == name)
    }

    /// Returns true if the work borrows from its caller, and so cannot run in its own task.
    ///
    /// `unless` names an argument that does not count if the work does not use it.
    pub(crate) fn borrows(&self, unless: Option<&Ident>) -> bool {
        let sig = &self.item.sig;
        let counts = |argument: &&Argument| {
            Some(&argument.ident) != unless || mentions(&self.item.block, &argument.ident)
        };
        let receiver = sig.receiver().map(|receiver| &*receiver.ty);
        let types = self.arguments.iter().filter(counts).map(|argument| &argument.ty);
        matches!(self.form, Form::Boxed(_))
            || sig.generics.lifetimes().next().is_some()
            || receiver.into_iter().chain(types).any(is_borrowed)
    }
}

/// Removes the arguments marked `#[grant]` from the signature.
pub(crate) fn take_grant(item: &mut ItemFn) -> Result<Option<PatType>> {
    let mut grants = Vec::new();
    let inputs = std::mem::take(&mut item.sig.inputs);
    for input in inputs {
        match input {
            FnArg::Typed(mut argument) if argument.attrs.iter().any(is_grant) => {
                argument.attrs.retain(|attribute| !is_grant(attribute));
                grants.push(argument);
            }
            other => item.sig.inputs.push(other),
        }
    }
    match grants.as_slice() {
        [] | [_] => Ok(grants.pop()),
        [_, second, ..] => {
            Err(Error::new_spanned(second, "there is one grant, so mark one argument"))
        }
    }
}

fn is_grant(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("grant")
}

fn form(sig: &Signature) -> Result<(Form, Type)> {
    let ReturnType::Type(_, output) = &sig.output else {
        let message = "an idempotent function returns `Result<T, E>`: that is what a retry gets";
        return Err(Error::new(sig.ident.span(), message));
    };
    match (sig.asyncness, boxed_future_output(output)) {
        (Some(_), _) => Ok((Form::Async, (**output).clone())),
        (None, Some(result)) => Ok((Form::Boxed(output.clone()), result)),
        (None, None) => {
            let message = "an idempotent function is an `async fn`: the engine awaits its store";
            Err(Error::new(sig.fn_token.span, message))
        }
    }
}

/// The `X` of `Pin<Box<dyn Future<Output = X> + …>>`, which `#[async_trait]` returns.
fn boxed_future_output(output: &Type) -> Option<Type> {
    let Type::TraitObject(object) = only_argument(only_argument(output, "Pin")?, "Box")? else {
        return None;
    };
    object.bounds.iter().find_map(|bound| match bound {
        TypeParamBound::Trait(bound) => future_output(&bound.path),
        _ => None,
    })
}

fn future_output(path: &Path) -> Option<Type> {
    generics(path, "Future")?.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(it) if it.ident == "Output" => Some(it.ty.clone()),
        _ => None,
    })
}

fn only_argument<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    generics(&path.path, name)?.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

fn generics<'a>(path: &'a Path, name: &str) -> Option<&'a AngleBracketedGenericArguments> {
    match path.segments.last() {
        Some(segment) if segment.ident == name => match &segment.arguments {
            PathArguments::AngleBracketed(arguments) => Some(arguments),
            _ => None,
        },
        _ => None,
    }
}

/// Names the arguments that are patterns, so that they can be fingerprinted as a whole.
fn name_arguments(sig: &mut Signature) -> Vec<Argument> {
    let typed = sig.inputs.iter_mut().filter_map(|input| match input {
        FnArg::Typed(argument) => Some(argument),
        FnArg::Receiver(_) => None,
    });
    typed.enumerate().map(|(position, argument)| name_argument(position, argument)).collect()
}

fn name_argument(position: usize, argument: &mut PatType) -> Argument {
    let ty = (*argument.ty).clone();
    if let Pat::Ident(it) = &*argument.pat
        && it.subpat.is_none()
    {
        let ident = it.ident.clone();
        return Argument { name: ident.unraw().to_string(), ident, pattern: None, ty };
    }
    let ident = Ident::new(&format!("argument_{position}"), Span::mixed_site());
    let named: Pat = syn::parse_quote!(#ident);
    let pattern = std::mem::replace(&mut *argument.pat, named);
    // By position: a pattern has no name, and no argument's name begins with a digit.
    Argument { name: position.to_string(), ident, pattern: Some(pattern), ty }
}

/// Returns true if a word occurs in a block, macros included.
fn mentions(block: &Block, word: &Ident) -> bool {
    fn within(tokens: TokenStream, word: &Ident) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => ident == *word,
            TokenTree::Group(group) => within(group.stream(), word),
            // Format strings name variables too.
            TokenTree::Literal(literal) => literal.to_string().contains(&format!("{{{word}")),
            TokenTree::Punct(_) => false,
        })
    }
    within(block.to_token_stream(), word)
}

fn is_borrowed(ty: &Type) -> bool {
    let mut borrows = Borrows(false);
    borrows.visit_type(ty);
    borrows.0
}

/// Searches for references and lifetimes other than `'static`.
struct Borrows(bool);

impl<'ast> Visit<'ast> for Borrows {
    fn visit_type_reference(&mut self, reference: &'ast syn::TypeReference) {
        self.0 |= reference.lifetime.is_none();
        visit::visit_type_reference(self, reference);
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        self.0 |= lifetime.ident != "static";
    }

    // Arguments of a function type are not held.
    fn visit_type_bare_fn(&mut self, _: &'ast TypeBareFn) {}
    fn visit_parenthesized_generic_arguments(&mut self, _: &'ast ParenthesizedGenericArguments) {}
}
