//! The scripts: `machine.rs` restated in Lua, one file a transition.

use std::sync::LazyLock;

/// A script's text, and the hash that the server knows it by.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: &'static str,
    pub(super) hash: String,
}

macro_rules! scripts {
    ($($(#[$comment:meta])* $name:ident = $($part:expr),+;)+) => {
        $(
            $(#[$comment])*
            pub(super) static $name: LazyLock<Script> =
                LazyLock::new(|| Script::new(concat!($($part),+)));
        )+
    };
}

/// Settlements and what else ends something has to fit when memory is full. Such a script is
/// refused as a whole on a replica, so it never answers from data that is behind.
macro_rules! fits {
    () => {
        "#!lua flags=allow-oom\n"
    };
}

scripts! {
    CLAIM = include_str!("lua/common.lua"), include_str!("lua/claim.lua");
    RENEW = fits!(), include_str!("lua/common.lua"), include_str!("lua/renew.lua");
    SETTLE = fits!(), include_str!("lua/common.lua"), include_str!("lua/decide.lua"),
        include_str!("lua/settle.lua");
    RESOLVE = fits!(), include_str!("lua/common.lua"), include_str!("lua/decide.lua"),
        include_str!("lua/resolve.lua");
    IMPORT = include_str!("lua/common.lua"), include_str!("lua/import.lua");
    SWEEP = fits!(), include_str!("lua/common.lua"), include_str!("lua/sweep.lua");
    INDEX = "#!lua flags=no-writes\n", include_str!("lua/common.lua"), include_str!("lua/index.lua");
    MARK = fits!(), include_str!("lua/common.lua"), include_str!("lua/mark.lua");
    READ_MARK = "#!lua flags=no-writes\n", include_str!("lua/common.lua"),
        include_str!("lua/read_mark.lua");
    REOPEN = fits!(), include_str!("lua/common.lua"), include_str!("lua/reopen.lua");
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }
}
