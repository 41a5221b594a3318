//! Certificates and keys, read from files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::ServerTls;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or does not hold the expected PEM.
    #[error("{path}: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// A certificate does not match its key, or is not usable.
    #[error("{path}: the certificate cannot be used: {source}")]
    Certificate {
        /// The certificate file.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
    /// The TLS library rejects its own settings.
    #[error("TLS: {0}")]
    Protocol(#[source] rustls::Error),
}

/// The cryptography provider. It is named explicitly because rustls cannot choose if the
/// dependency tree has two.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Certificate authorities that the other side's certificate is checked against: those of a
/// file, or the system's.
pub(crate) fn roots(ca: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in certificates(path)? {
                let added = roots.add(certificate);
                added.map_err(|source| TlsError::Certificate { path: path.into(), source })?;
            }
        }
        None => {
            let known = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(known.certs);
        }
    }
    Ok(roots)
}

/// The TLS configuration of a listener.
pub(crate) fn server(tls: &ServerTls) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Protocol)?;
    let builder = match &tls.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(roots(Some(path))?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
            let why = |why: rustls::server::VerifierBuilderError| why.to_string();
            let verifier = verifier.map_err(|error| file(path, why(error)))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|why| file(&tls.key, why))?;
    let config = builder.with_single_cert(certificates(&tls.certificate)?, key);
    let mut config =
        config.map_err(|source| TlsError::Certificate { path: tls.certificate.clone(), source })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Digest of a verified certificate's subject; `None` if it has no subject. A digest, because two
/// subjects can look the same as text, and one can be longer than a caller's name may be.
pub(crate) fn subject(certificate: &CertificateDer<'_>) -> Option<Arc<str>> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    subject.iter_rdn().next()?;
    let digest = Sha256::digest(subject.as_raw());
    Some(digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|why| file(path, why))?;
    let read = read.collect::<Result<Vec<_>, _>>().map_err(|why| file(path, why))?;
    if read.is_empty() { Err(file(path, "the file contains no certificate")) } else { Ok(read) }
}

fn file(path: &Path, why: impl std::fmt::Display) -> TlsError {
    TlsError::File { path: path.into(), why: why.to_string() }
}
