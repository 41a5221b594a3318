//! A gateway on a free port, with an in-memory store unless a test needs another.

use std::net::SocketAddr;
use std::path::Path;

use onceward_core::Drained;
use onceward_server::config::Config;
use onceward_server::gateway::Gateway;

use crate::service::Service;
use crate::wire::{Wire, WireResponse};

/// Additional settings: lines of `[[listeners]]` and `[upstream]`, and tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings<'a> {
    /// Lines before all tables.
    pub(crate) before: &'a str,
    pub(crate) listener: &'a str,
    pub(crate) upstream: &'a str,
    /// The store's URL.
    pub(crate) store: &'a str,
    pub(crate) tables: &'a str,
}

impl Default for Settings<'_> {
    fn default() -> Self {
        let tables = "[scope]\nsingle_tenant = true";
        Self { before: "", listener: "", upstream: "", store: "memory:", tables }
    }
}

impl Settings<'_> {
    pub(crate) async fn before(self, upstream: &str) -> TestGateway {
        let Self { before, listener, upstream: more, store, tables } = self;
        let text = format!(
            "{before}\n[[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n\
             [upstream]\nurl = \"{upstream}\"\n{more}\n[store]\nurl = \"{store}\"\n{tables}"
        );
        let config = Config::parse(&text, Path::new("test.toml")).unwrap();
        TestGateway { gateway: Gateway::start(config.clone()).await.unwrap(), config }
    }
}

/// A gateway, with methods of clients.
pub(crate) struct TestGateway {
    gateway: Gateway,
    config: Config,
}

impl TestGateway {
    /// Starts with all clients as one caller, and defaults.
    pub(crate) async fn before(service: &Service) -> Self {
        Settings::default().before(&service.base()).await
    }

    /// Starts with additional tables of settings.
    pub(crate) async fn with(service: &Service, tables: &str) -> Self {
        Settings { tables, ..Settings::default() }.before(&service.base()).await
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.addresses()[0]
    }

    /// Reloads with another upstream, and returns the error's text.
    pub(crate) fn reload_upstream(&self, url: &str) -> Result<(), String> {
        self.reload(|config| config.upstream.url = url.parse().unwrap())
    }

    /// Reloads with other settings, and returns the error's text.
    pub(crate) fn reload(&self, change: impl FnOnce(&mut Config)) -> Result<(), String> {
        let mut config = self.config.clone();
        change(&mut config);
        self.gateway.reload(config).map(drop).map_err(|error| error.to_string())
    }

    /// The metrics, if the settings have an admin address.
    pub(crate) async fn metrics(&self) -> String {
        let mut wire = Wire::to(self.gateway.admin().expect("an admin address")).await;
        wire.send("GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        wire.answer().await.body
    }

    /// Stops the gateway as SIGTERM does.
    pub(crate) async fn stop(self) -> Drained {
        self.gateway.stop().await
    }

    pub(crate) async fn connect(&self) -> Wire {
        Wire::to(self.address()).await
    }

    /// Sends one request on a new connection.
    pub(crate) async fn send(&self, request: &str) -> WireResponse {
        let mut wire = self.connect().await;
        wire.send(request).await;
        wire.answer().await
    }

    pub(crate) async fn get(&self, path: &str) -> WireResponse {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: shop\r\n\r\n")).await
    }

    /// Sends a POST with a key and headers, each with its line break.
    pub(crate) async fn post(&self, path: &str, key: &str, headers: &str) -> WireResponse {
        self.send(&post(path, key, headers)).await
    }
}

pub(crate) fn post(path: &str, key: &str, headers: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: shop\r\nidempotency-key: {key}\r\n{headers}\
         content-type: application/json\r\ncontent-length: 7\r\n\r\n{{\"a\":1}}"
    )
}
