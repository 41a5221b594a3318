-- Extends live leases of their holders, and returns those. The others are decided one by one.
--
-- $1 id, $2 owner, $3 fence, $4 lease in ms, all arrays.
WITH moment AS MATERIALIZED (SELECT date_trunc('milliseconds', clock_timestamp()) AS now)
UPDATE {schema}.idempotency_record AS r SET
    locked_until = greatest(r.locked_until, moment.now + call.lease_ms * interval '1 millisecond'),
    updated_at = moment.now,
    version = r.version + 1
FROM moment, unnest($1::bytea[], $2::uuid[], $3::bigint[], $4::bigint[])
    AS call (id, owner_token, fence, lease_ms)
WHERE r.id = call.id AND r.owner_token = call.owner_token AND r.fence = call.fence
    AND r.state = 'running' AND r.locked_until > moment.now
RETURNING r.id, r.locked_until
