//! The Redis store: the one suite, on a server and on a cluster, and what it promises beyond.

mod calls;
mod lives;

mod redis {
    mod cluster;
    pub(crate) mod common;
    mod conformance;
    mod faults;
    mod kill;
    mod load;
    mod loss;
    mod network;
    mod records;
    mod refusal;
    mod replicas;
    mod tls;
}
