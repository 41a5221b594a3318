//! Asks PostgreSQL: a row holds the answer.

use onceward_core::{BoxError, Identity, Outcome, Since};
use onceward_stores::postgres::SqlResolver;
use onceward_stores::postgres::tokio_postgres::Row;
use onceward_stores::postgres::tokio_postgres::types::Type;
use serde_json::Value;

use super::ResolverError;
use super::answer::Answer;
use crate::config;

pub(super) fn open(
    settings: &config::SqlResolver,
    since: Since,
    identity: Identity,
) -> Result<SqlResolver, ResolverError> {
    let (url, query) = (settings.url.expose(), settings.query.0.clone());
    Ok(SqlResolver::new(url, query, identity, read)?.grace(settings.grace.0).since(since))
}

/// Reads the columns `status`, `headers` and `body`, each optional. Other columns are ignored.
fn read(row: &Row) -> Result<Outcome, BoxError> {
    let mut answer = Answer::default();
    for (index, column) in row.columns().iter().enumerate() {
        match column.name() {
            "status" => answer.status = u16::try_from(number(row, index)?)?,
            "headers" => answer.headers = serde_json::from_str(&text(row, index)?)?,
            "body" => answer.body = body(row, index)?,
            _ => {}
        }
    }
    if let Some(Value::String(text)) = &answer.body
        && !answer.headers.keys().any(|name| name.eq_ignore_ascii_case("content-type"))
        && is_document(text)
    {
        answer.headers.insert("content-type".into(), "application/json".into());
    }
    answer.outcome()
}

/// Returns whether a text is a JSON object or array. It is answered as written, so its members
/// stay in order.
fn is_document(text: &str) -> bool {
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    is_json && text.trim_start().starts_with(['{', '['])
}

fn number(row: &Row, index: usize) -> Result<i64, BoxError> {
    Ok(match *row.columns()[index].type_() {
        Type::INT2 => i64::from(row.try_get::<_, i16>(index)?),
        Type::INT4 => i64::from(row.try_get::<_, i32>(index)?),
        Type::INT8 => row.try_get(index)?,
        ref other => return Err(format!("status is {other}; it must be an integer").into()),
    })
}

fn text(row: &Row, index: usize) -> Result<String, BoxError> {
    match *row.columns()[index].type_() {
        Type::TEXT | Type::VARCHAR => Ok(row.try_get(index)?),
        ref other => Err(format!("headers is {other}; write headers::text").into()),
    }
}

fn body(row: &Row, index: usize) -> Result<Option<Value>, BoxError> {
    match *row.columns()[index].type_() {
        Type::TEXT | Type::VARCHAR => {
            Ok(row.try_get::<_, Option<String>>(index)?.map(Value::String))
        }
        ref other => Err(format!("body is {other}; write body::text").into()),
    }
}
