//! A certificate authority for one test.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tempfile::TempDir;

/// Signs certificates and writes them to files.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

/// A certificate and its key, as PEM.
pub(crate) struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer, directory: tempfile::tempdir().unwrap() }
    }

    /// Issues a certificate for `localhost` and 127.0.0.1 with this subject.
    pub(crate) fn issue(&self, subject: &[(DnType, &str)]) -> Identity {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (part, value) in subject {
            params.distinguished_name.push(part.clone(), *value);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// File with the authority's own certificate.
    pub(crate) fn path(&self) -> PathBuf {
        self.file("ca.pem", &self.issuer.pem())
    }

    /// The `tls` line of a listener.
    pub(crate) fn listener(&self, clients: Option<&Authority>) -> String {
        let server = self.issue(&[(DnType::CommonName, "localhost")]);
        let certificate = self.file("server.pem", &server.certificate);
        let key = self.file("server.key", &server.key);
        let clients = clients.map(|it| format!(", client_ca = {:?}", it.path()));
        let clients = clients.unwrap_or_default();
        format!("tls = {{ certificate = {certificate:?}, key = {key:?}{clients} }}")
    }

    /// TLS configuration of a service.
    pub(crate) fn server(&self, protocol: &str) -> Arc<ServerConfig> {
        let (chain, key) = self.issue(&[(DnType::CommonName, "localhost")]).parsed();
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let config = builder.with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.unwrap();
        config.alpn_protocols = vec![protocol.into()];
        Arc::new(config)
    }

    /// TLS configuration of a client that trusts this authority.
    pub(crate) fn client(&self, identity: Option<Identity>, protocol: &str) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.issuer.pem().as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let mut config = match identity.map(|it| it.parsed()) {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.into()];
        Arc::new(config)
    }
}

impl Identity {
    fn parsed(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let chain = vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()];
        (chain, PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap())
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
