//! Many cases under one key, on every store, also when the service is killed in the middle.

mod case_process;
mod crashes;
mod requests;
mod test_store;
