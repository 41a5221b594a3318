//! The scripts: `machine.rs` restated in Lua, one file for each transition.

use std::sync::LazyLock;

/// A script's text, and its hash at the server.
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

/// Flag of scripts that end something, which must work when memory is full. A replica refuses such
/// a script as a whole, so it never answers from stale data.
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
    INVALIDATE = fits!(), include_str!("lua/common.lua"), include_str!("lua/invalidate.lua");
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
