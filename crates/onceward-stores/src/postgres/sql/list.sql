-- A page of records in the order of their ids: after id $1, in state $2 by now, of tenant $3 and
-- operation name $4, at most $5. Records in states that are unknown here are always included.
SELECT false AS granted, now, {columns}
FROM (SELECT date_trunc('milliseconds', clock_timestamp()) AS now) AS moment,
    {schema}.idempotency_record AS r
WHERE ($1::bytea IS NULL OR r.id > $1)
    AND r.id <> {sentinel}
    AND coalesce(r.forget_at > now, true)
    AND ($3::text IS NULL OR r.tenant_id = $3)
    AND ($4::text IS NULL OR r.operation_name = $4)
    AND ($2::text IS NULL OR coalesce($2 = CASE
        WHEN r.state = 'running' AND r.locked_until > now THEN 'running'
        WHEN r.state IN ('running', 'unknown') THEN 'unknown'
        WHEN r.expires_at <= now THEN 'expired'
        ELSE r.state END, true)
        OR r.state NOT IN ('running', 'completed', 'failed', 'released', 'unknown', 'expired'))
ORDER BY r.id LIMIT $5::bigint
