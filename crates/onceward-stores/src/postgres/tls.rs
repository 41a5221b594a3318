//! TLS, by rustls with aws-lc-rs.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::OpenError;

/// A connector that trusts the certificates in a file, or the system's. With TLS the server's
/// certificate and name are always checked.
pub(super) fn connector(file: Option<&Path>) -> Result<MakeRustlsConnect, OpenError> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => trust_file(&mut roots, file)?,
        // Some of the system's certificates may be broken; the others are used.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    trusting(roots)
}

/// A connector for connections without TLS.
pub(super) fn connector_without_roots() -> Result<MakeRustlsConnect, OpenError> {
    trusting(RootCertStore::empty())
}

fn trusting(roots: RootCertStore) -> Result<MakeRustlsConnect, OpenError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("TLS", error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn trust_file(roots: &mut RootCertStore, file: &Path) -> Result<(), OpenError> {
    let path = file.display().to_string();
    let found = CertificateDer::pem_file_iter(file).map_err(|error| unusable(&path, error))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| unusable(&path, error))?;
        roots.add(certificate).map_err(|error| unusable(&path, error))?;
    }
    if roots.is_empty() { Err(unusable(&path, "it contains none")) } else { Ok(()) }
}

fn unusable(path: &str, reason: impl std::fmt::Display) -> OpenError {
    OpenError::Certificates { path: path.to_owned(), reason: reason.to_string() }
}
