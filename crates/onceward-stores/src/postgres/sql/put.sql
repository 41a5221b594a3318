-- Writes new states of rows, if fence and version are still those that were read. Returns the rows
-- that were written.
--
-- $1 id, $2 fence and $3 version that were read, then the new row: all arrays. $34 is the channel.
UPDATE {schema}.idempotency_record AS r SET
    operation_id = call.operation_id,
    owner_token = call.owner_token,
    fence = call.fence,
    version = r.version + 1,
    purge_after = coalesce(call.purge_after, r.purge_after),
    created_at = call.created_at,
    updated_at = call.updated_at,
    locked_until = call.locked_until,
    expires_at = call.expires_at,
    forget_at = call.forget_at,
    attempts = call.attempts,
    taken_over = call.taken_over,
    -- Waiters of an earlier grant mark the record again.
    awaited = r.awaited AND r.fence = call.fence,
    state = call.state,
    request_fingerprint = call.request_fingerprint,
    tenant_id = call.tenant_id,
    caller_id = call.caller_id,
    operation_name = call.operation_name,
    api_version = call.api_version,
    parent_resource = call.parent_resource,
    region = call.region,
    idempotency_key = call.idempotency_key,
    request_sketch = call.request_sketch,
    outcome_content = call.outcome_content,
    outcome_codec = call.outcome_codec,
    resource_type = call.resource_type,
    resource_id = call.resource_id,
    response_body = call.response_body,
    unknown_cause = call.unknown_cause,
    http_status = call.http_status,
    error_code = call.error_code,
    request_path = call.request_path
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
WHERE r.id = call.id AND r.fence = call.was_fence AND r.version = call.was_version
RETURNING r.id,
    CASE WHEN r.awaited THEN pg_notify($34, encode(substring(r.id FOR 16), 'hex')) IS NULL END AS told
