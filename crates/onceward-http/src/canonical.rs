//! JSON in one canonical form: equal exactly when two documents mean the same.
