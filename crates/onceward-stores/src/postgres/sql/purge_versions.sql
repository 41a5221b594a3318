-- Expires or removes rows that are due, if they are still of these versions, and skips locked ones.
--
-- $1 id, $2 fence, $3 state, $4 updated_at: arrays.
WITH moment AS MATERIALIZED (SELECT date_trunc('milliseconds', clock_timestamp()) AS now),
due AS MATERIALIZED (
    SELECT r.id, CASE WHEN r.forget_at <= (SELECT now FROM moment) THEN 'remove' ELSE 'bury' END AS what
    FROM {schema}.idempotency_record AS r,
        unnest($1::bytea[], $2::bigint[], $3::text[], $4::timestamptz[])
            AS archived (id, fence, state, updated_at)
    WHERE r.id = archived.id AND r.fence = archived.fence AND r.state = archived.state
        AND r.updated_at = archived.updated_at
        AND r.state IN ('completed', 'failed', 'released', 'expired')
        AND (r.forget_at <= (SELECT now FROM moment)
            OR (r.state <> 'expired' AND r.expires_at <= (SELECT now FROM moment)))
    ORDER BY r.id
    FOR UPDATE OF r SKIP LOCKED
),
{removal}
SELECT (SELECT count(*) FROM due) AS seen, (SELECT count(*) FROM removed) AS removed,
    (SELECT count(*) FROM buried) AS buried
