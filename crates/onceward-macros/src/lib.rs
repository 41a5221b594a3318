//! `#[idempotent]`: run an async function once per intent.
