//! The OpenAPI 3.1 document of the API.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde_json::json;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::schema::{Object, Ref, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{self, ContentBuilder, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};

use super::{batch, claim, lookup, settle};
use crate::api::ApiProblem;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Onceward claims",
        version = "1",
        description = "Claims for workers in any language: the same request has one effect and one \
            outcome.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    paths(
        claim::post,
        lookup::get_by_key,
        lookup::get,
        settle::renew,
        settle::complete,
        settle::fail,
        settle::unknown,
        settle::release,
        batch::claims,
        batch::settlements,
        get
    ),
    components(schemas(ApiProblem)),
    security(("token" = [])),
    modifiers(&Tokens)
)]
struct Document;

/// Authentication by bearer token.
struct Tokens;

impl Modify for Tokens {
    fn modify(&self, document: &mut openapi::OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

/// The document, built once.
static TEXT: LazyLock<String> = LazyLock::new(|| {
    let mut document = json!(Document::openapi());
    let schemas = &mut document["components"]["schemas"];
    // The macros cannot express that at most one of two members is allowed.
    schemas["ClaimBody"]["not"] = json!({
        "required": ["fingerprint", "payload"],
        "properties": { "fingerprint": { "type": "string" } },
    });
    schemas["ResultBody"]["not"] = json!({
        "required": ["result", "bytes"],
        "properties": { "result": { "not": { "type": "null" } }, "bytes": { "type": "object" } },
    });
    document.to_string()
});

/// The OpenAPI document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "openapi",
    security(()),
    responses((status = 200, content_type = "application/json", body = Object, description = "This document"))
)]
pub(super) async fn get() -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(CONTENT_TYPE, json)], TEXT.as_str()).into_response()
}

type Responses = BTreeMap<String, RefOr<openapi::Response>>;

/// Problem responses of all requests with a body.
pub(super) struct RequestErrors;
/// Further problem responses of a claim.
pub(super) struct ClaimErrors;
/// Further problem responses of a renewal or settlement.
pub(super) struct SettleErrors;
/// The problem response for an unknown operation.
pub(super) struct NotFound;
/// Problem responses of reads.
pub(super) struct ReadErrors;

impl IntoResponses for RequestErrors {
    fn responses() -> Responses {
        problems(&[
            ("400", "The body is invalid"),
            ("401", "The token is missing or unknown"),
            ("403", "The token does not allow this request"),
            ("408", "The body did not arrive in time"),
            ("413", "The body is too large"),
            ("415", "The content type is not application/json"),
            ("503", "The store is unavailable: send the request again"),
        ])
    }
}

impl IntoResponses for ClaimErrors {
    fn responses() -> Responses {
        problems(&[
            (
                "409",
                "The operation is running, its outcome is unknown or invalidated, or the key has expired",
            ),
            ("422", "The key was used for another request"),
        ])
    }
}

impl IntoResponses for SettleErrors {
    fn responses() -> Responses {
        problems(&[("404", "There is no such claim"), ("409", "The lease is lost")])
    }
}

impl IntoResponses for NotFound {
    fn responses() -> Responses {
        problems(&[("404", "There is no such operation")])
    }
}

impl IntoResponses for ReadErrors {
    fn responses() -> Responses {
        problems(&[
            ("400", "The query is invalid"),
            ("401", "The token is missing or unknown"),
            ("503", "The store is unavailable: send the request again"),
        ])
    }
}

fn problems(errors: &[(&str, &str)]) -> Responses {
    let response = |(status, description): &(&str, &str)| {
        let (status, description) = ((*status).to_owned(), *description);
        let response = RefOr::T(problem(&status, description));
        (status, response)
    };
    errors.iter().map(response).collect()
}

fn problem(status: &str, description: &str) -> openapi::Response {
    let schema = Ref::from_schema_name("ApiProblem");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response = ResponseBuilder::new()
        .description(description)
        .content("application/problem+json", content);
    let header = |kind, description: &str| {
        HeaderBuilder::new()
            .schema(Some(Object::with_type(kind)))
            .description(Some(description))
            .build()
    };
    match status {
        "401" => response
            .header("WWW-Authenticate", header(Type::String, "The authentication scheme"))
            .build(),
        "503" => response.header("Retry-After", header(Type::Integer, "Delay in seconds")).build(),
        _ => response.build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn the_document_is_openapi_3_1_and_names_every_route() {
        let document: Value = serde_json::from_str(&TEXT).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        let served = include_str!("mod.rs").split(".route(\"").skip(1);
        for path in served.map(|it| it.split('"').next().unwrap()) {
            assert!(document["paths"][path].is_object(), "{path}");
        }
        for one_of_two in ["ClaimBody", "ResultBody"] {
            assert!(document["components"]["schemas"][one_of_two]["properties"].is_object());
        }
    }
}
