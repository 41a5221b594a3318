r.id, r.operation_id, r.owner_token, r.fence, r.version, r.created_at, r.updated_at,
r.locked_until, r.expires_at, r.forget_at, r.attempts, r.taken_over, r.state,
r.request_fingerprint, r.tenant_id, r.caller_id, r.operation_name, r.api_version,
r.parent_resource, r.region, r.idempotency_key, r.request_sketch, r.outcome_content,
r.outcome_codec, r.resource_type, r.resource_id, r.response_body, r.unknown_cause, r.http_status,
r.error_code, r.request_path
