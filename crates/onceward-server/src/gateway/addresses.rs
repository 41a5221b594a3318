//! The addresses of a gateway, all bound before any is served.

use crate::config::{Config, OwnAddress};
use crate::net::{BoundAddress, ListenError};

/// All addresses of a gateway.
pub(super) struct Addresses {
    /// In the order of the configuration.
    pub(super) listeners: Vec<BoundAddress>,
    pub(super) admin: Option<BoundAddress>,
    pub(super) claims: Option<BoundAddress>,
}

impl Addresses {
    /// Binds all addresses, or none.
    pub(super) fn bind(config: &Config) -> Result<Self, ListenError> {
        let listeners = config.listeners.iter().enumerate().map(|(number, listener)| {
            BoundAddress::bind(format!("listeners[{number}].address (--listen)"), listener.address)
        });
        let listeners = listeners.collect::<Result<_, _>>()?;
        let admin =
            config.admin.map(|it| BoundAddress::bind("admin.address (--admin)", it.address));
        let claims = config.claims.map(|it| BoundAddress::bind("claims.address", it.address));
        Ok(Self { listeners, admin: admin.transpose()?, claims: claims.transpose()? })
    }

    /// All addresses, with the ports that the system chose.
    pub(super) fn own(&self) -> Vec<OwnAddress> {
        self.listeners
            .iter()
            .chain(&self.admin)
            .chain(&self.claims)
            .map(BoundAddress::own)
            .collect()
    }
}
