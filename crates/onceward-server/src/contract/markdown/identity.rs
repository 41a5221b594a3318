//! Sentences about the owner of a key, and what must stay the same between attempts.

use super::super::owner::{DimensionIdentity, Identity, Owner};
use super::super::words::{code, header, list};
use super::advice;

pub(super) fn sentences(Owner { tenant, caller, dimensions }: &Owner) -> Vec<String> {
    let identities = || [caller, tenant].into_iter().flatten();
    let accounts = [(caller, "your account"), (tenant, "your organisation")].into_iter();
    let owners = accounts.filter_map(|(identity, account)| owner(identity.as_ref()?, account));
    let owners: Vec<_> = owners.collect();
    let mut sentences = Vec::new();
    if !owners.is_empty() {
        // The most restrictive one says enough.
        let note = identities().filter_map(note).min();
        let note = note.map_or(String::new(), |(_, note)| format!(" {note}"));
        sentences.push(format!(
            "The owner of a key is identified by {}. Another owner may use the same key for its own \
             request. So a retry must come from the same owner: from another one the key is new, \
             and **the request is executed again**.{note}",
            list(&owners)
        ));
    }
    if identities().any(|it| *it == Identity::CredentialsOfFirstRequest) {
        sentences.push(advice::BOUND_CREDENTIALS.into());
    }
    if sentences.is_empty() {
        sentences.push(advice::SHARED_KEYS.into());
    }
    if !dimensions.is_empty() {
        let places: Vec<_> = dimensions.iter().map(|(_, identity)| place(identity)).collect();
        sentences.push(format!(
            "A key also belongs to {}. Keep it the same between attempts: with another one the key is \
             new, and **the request is executed again**.",
            list(&places)
        ));
    }
    sentences
}

/// Something that a key belongs to besides its owner.
fn place(identity: &DimensionIdentity) -> String {
    match identity {
        DimensionIdentity::Header(name) => {
            format!("the value of your header {}", code(&header(name)))
        }
        DimensionIdentity::Host => "the host name that you send requests to".into(),
        DimensionIdentity::TokenClaim(name) => format!("the claim {} of your token", code(name)),
        DimensionIdentity::PathParameter(name) => {
            format!("the parameter {} of the path", code(&format!("{{{name}}}")))
        }
        DimensionIdentity::Arrival => "the region that your request arrives in".into(),
    }
}

/// The owner of a key, an account by its own name; `None` if the key is bound to credentials
/// instead.
fn owner(identity: &Identity, account: &str) -> Option<String> {
    Some(match identity {
        Identity::CredentialsOfFirstRequest => return None,
        Identity::Credentials => {
            "your credentials (token, API key, cookies, client certificate)".into()
        }
        Identity::Header(name) => format!("the value of your header {}", code(&header(name))),
        Identity::Cookie(name) => format!("the value of your cookie {}", code(name)),
        Identity::Host => "the host name that you send requests to".into(),
        Identity::Account => account.into(),
        Identity::TokenClaim(name) => format!("the claim {} of your token", code(name)),
        Identity::CertificateSubject => "the subject of your client certificate".into(),
    })
}

/// Which changes between attempts are harmless, with a rank: the most restrictive note comes first.
fn note(identity: &Identity) -> Option<(u8, &'static str)> {
    match identity {
        Identity::Credentials => Some((0, advice::EACH_CREDENTIAL)),
        Identity::TokenClaim(_) => Some((1, advice::TOKEN_CLAIM)),
        Identity::CertificateSubject => Some((2, advice::CERTIFICATE)),
        Identity::Account => Some((3, advice::ACCOUNT)),
        Identity::CredentialsOfFirstRequest
        | Identity::Header(_)
        | Identity::Cookie(_)
        | Identity::Host => None,
    }
}
