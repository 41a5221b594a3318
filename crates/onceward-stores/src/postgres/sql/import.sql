-- Inserts records of another store whose ids are new, and returns those.
--
-- The parameters are those of put.sql; $2 and $3 are ignored.
INSERT INTO {schema}.idempotency_record (
    id, operation_id, owner_token, fence, version, purge_after, created_at, updated_at,
    locked_until, expires_at, forget_at, attempts, taken_over, state, request_fingerprint,
    tenant_id, caller_id, operation_name, api_version, parent_resource, region, idempotency_key,
    request_sketch, outcome_content, outcome_codec, resource_type, resource_id, response_body,
    unknown_cause, http_status, error_code, request_path
)
SELECT
    id, operation_id, owner_token, fence, 1, coalesce(purge_after, 'infinity'), created_at,
    updated_at, locked_until, expires_at, forget_at, attempts, taken_over, state,
    request_fingerprint, tenant_id, caller_id, operation_name, api_version, parent_resource,
    region, idempotency_key, request_sketch, outcome_content, outcome_codec, resource_type,
    resource_id, response_body, unknown_cause, http_status, error_code, request_path
FROM unnest(
    $1::bytea[], $2::bigint[], $3::bigint[], $4::uuid[], $5::uuid[], $6::bigint[],
    $7::timestamptz[], $8::timestamptz[], $9::timestamptz[], $10::timestamptz[],
    $11::timestamptz[], $12::timestamptz[], $13::integer[], $14::boolean[], $15::text[],
    $16::bytea[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[],
    $23::text[], $24::bytea[], $25::text[], $26::text[], $27::text[], $28::text[], $29::bytea[],
    $30::text[], $31::integer[], $32::text[], $33::text[]
) AS call (
    id, was_fence, was_version, operation_id, owner_token, fence, purge_after, created_at,
    updated_at, locked_until, expires_at, forget_at, attempts, taken_over, state,
    request_fingerprint, tenant_id, caller_id, operation_name, api_version, parent_resource,
    region, idempotency_key, request_sketch, outcome_content, outcome_codec, resource_type,
    resource_id, response_body, unknown_cause, http_status, error_code, request_path
)
ON CONFLICT (id) DO NOTHING
RETURNING idempotency_record.id
