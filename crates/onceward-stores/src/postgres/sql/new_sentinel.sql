-- Inserts the sentinel of the migration again. Returns a row if it was missing.
INSERT INTO {schema}.idempotency_record (
    id, operation_id, owner_token, fence, version, purge_after, created_at, updated_at, expires_at,
    forget_at, attempts, taken_over, state, request_fingerprint, tenant_id, caller_id, operation_name
) VALUES (
    {sentinel}, '00000000-0000-0000-0000-000000000000',
    '00000000-0000-0000-0000-000000000000', 0, 1, 'infinity', now(), now(), now(), '9999-12-31',
    0, false, 'expired', decode(repeat('00', 33), 'hex'), 'onceward:internal', 'onceward', 'sentinel'
)
ON CONFLICT (id) DO NOTHING
RETURNING true AS made
