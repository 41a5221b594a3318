-- The sentinel: a row that is lost together with the records. No claim is granted without it.
--
-- TRUNCATE, a DELETE without a condition and a recreated table remove it with the records, and then
-- a missing id is not a new one. No record has its id. It is a record that earlier releases can
-- read, and it is never due.

INSERT INTO {schema}.idempotency_record (
    id, operation_id, owner_token, fence, version, purge_after, created_at, updated_at, expires_at,
    forget_at, attempts, taken_over, state, request_fingerprint, tenant_id, caller_id, operation_name
) VALUES (
    decode(repeat('ff', 32), 'hex'), '00000000-0000-0000-0000-000000000000',
    '00000000-0000-0000-0000-000000000000', 0, 1, 'infinity', now(), now(), now(), '9999-12-31',
    0, false, 'expired', decode(repeat('00', 33), 'hex'), 'onceward:internal', 'onceward', 'sentinel'
);
