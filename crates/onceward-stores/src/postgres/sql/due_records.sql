-- At most $1 due rows, with response bodies of at most $2 bytes before the last one. `visited` is how
-- many there were before the bodies were counted.
WITH moment AS MATERIALIZED (SELECT date_trunc('milliseconds', clock_timestamp()) AS now),
due AS MATERIALIZED (
    SELECT id, purge_after, octet_length(response_body) AS bytes
    FROM {schema}.idempotency_record
    WHERE purge_after <= (SELECT now FROM moment)
        AND state IN ('completed', 'failed', 'released', 'expired')
        AND (forget_at <= (SELECT now FROM moment)
            OR (state <> 'expired' AND expires_at <= (SELECT now FROM moment)))
    ORDER BY purge_after, id LIMIT $1::bigint
), sized AS (
    SELECT id, count(*) OVER () AS visited, coalesce(sum(bytes) OVER (
        ORDER BY purge_after, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
    FROM due
)
SELECT false AS granted, moment.now, sized.visited, {columns}
FROM moment, sized, {schema}.idempotency_record AS r
WHERE r.id = sized.id AND sized.before < $2::bigint
