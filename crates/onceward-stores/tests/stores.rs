//! Every store: the one suite, and what each promises beyond. Tests that need a server which
//! is not installed are skipped, and say so.

mod calls;
mod lives;
mod load;

mod dual {
    mod common;
    mod conformance;
    mod copy;
    mod flip;
    mod trouble;
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
    #[cfg(feature = "sqlx")]
    mod in_sqlx;
    mod kill;
    mod loss;
    mod migrations;
    mod rows;
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
    mod kill;
    mod tiers;
}
