//! The Idempotency-Key protocol as a tower layer: one effect and one answer for every retry
//! of an HTTP request.

mod canonical;
