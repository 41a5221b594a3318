-- Grants new ids, and returns the records of the others: one row for each id. There is no row if
-- another transaction inserted the record during this statement (its snapshot cannot see it: send
-- again), or if the sentinel is gone together with the records.
--
-- $1 id, $2 owner, $3 operation, $4-$9 scope, $10 key, $11 fingerprint, $12 sketch, $13 path,
-- $14 lease in ms: arrays in the order of the ids. $15 is how far ahead purge_after is predicted, in
-- ms, and $16 the unit to which it is rounded up.
WITH call AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::bytea[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[],
        $8::text[], $9::text[], $10::text[], $11::bytea[], $12::bytea[], $13::text[],
        $14::bigint[]
    ) AS call (
        id, owner_token, operation_id, tenant_id, caller_id, operation_name, api_version,
        parent_resource, region, idempotency_key, request_fingerprint, request_sketch,
        request_path, lease_ms
    )
), moment AS MATERIALIZED (
    SELECT now, (date_part('epoch', now) * 1000)::bigint AS now_ms,
        (SELECT fence FROM {schema}.fence_floor WHERE only_row) AS floor
    FROM (SELECT date_trunc('milliseconds', clock_timestamp()) AS now) AS clock
), old AS MATERIALIZED (
    SELECT r.* FROM {schema}.idempotency_record AS r WHERE r.id = ANY ($1::bytea[])
), granted AS (
    INSERT INTO {schema}.idempotency_record (
        id, operation_id, owner_token, fence, version, purge_after, created_at, updated_at,
        locked_until, attempts, taken_over, state, request_fingerprint, tenant_id, caller_id,
        operation_name, api_version, parent_resource, region, idempotency_key, request_sketch,
        request_path
    )
    SELECT
        call.id, call.operation_id, call.owner_token, greatest(floor + 1, now_ms), 1,
        to_timestamp(ceil((now_ms + $15::bigint)::float8 / $16::bigint) * $16::bigint / 1000),
        now, now, now + call.lease_ms * interval '1 millisecond', 1, false, 'running',
        call.request_fingerprint, call.tenant_id, call.caller_id, call.operation_name,
        call.api_version, call.parent_resource, call.region, call.idempotency_key,
        call.request_sketch, call.request_path
    FROM call CROSS JOIN moment
    WHERE NOT EXISTS (SELECT FROM old WHERE old.id = call.id)
        AND EXISTS (SELECT FROM {schema}.idempotency_record AS r WHERE r.id = {sentinel})
    ORDER BY call.id
    ON CONFLICT (id) DO NOTHING
    RETURNING idempotency_record.*
)
SELECT true AS granted, (SELECT now FROM moment) AS now, {columns} FROM granted AS r
UNION ALL
SELECT false AS granted, (SELECT now FROM moment) AS now, {columns} FROM old AS r
