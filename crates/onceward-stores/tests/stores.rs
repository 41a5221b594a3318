//! Tests of all stores: the conformance suite, and the guarantees of each. Tests whose server is
//! not installed are skipped with a message.

mod calls;
mod lives;
mod load;

mod archive {
    pub(crate) mod files;
    mod kill;
}

mod dual {
    mod common;
    mod conformance;
    mod copy;
    mod lag;
    mod switchover;
    mod under_load;
}

mod embedded {
    pub(crate) mod common;
    mod conformance;
    mod damage;
    mod faults;
    mod golden;
    mod kill;
    mod lock;
    mod memory;
    mod power;
    mod refusal;
    mod reopen;
}

mod postgres {
    pub(crate) mod common;
    pub(crate) mod conformance;
    mod faults;
    mod kill;
    mod loss;
    mod migrations;
    mod rows;
    #[cfg(feature = "sqlx")]
    mod sqlx_transaction;
    mod tls;
    mod together;
    mod transactions;
    mod transactions_kill;
    mod wake;
}

mod redis {
    mod cluster;
    pub(crate) mod common;
    pub(crate) mod conformance;
    mod faults;
    mod kill;
    mod loss;
    mod network;
    mod records;
    mod refusal;
    mod replicas;
    mod tls;
}

mod sealed {
    pub(crate) mod common;
    mod conformance;
    mod embedded;
    mod keys;
    mod rotation;
    mod tamper;
}

mod tiered {
    mod common;
    mod conformance;
    mod faults;
    mod invalidation;
    mod kill;
    mod tiers;
}
