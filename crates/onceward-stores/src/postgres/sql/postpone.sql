-- Moves the next visit of rows that cleaning up would visit and leave: running and unknown ones, and
-- those whose retention has become longer. So they do not stand before rows that are due.
--
-- $1 most rows to visit.
WITH moment AS MATERIALIZED (SELECT date_trunc('milliseconds', clock_timestamp()) AS now),
visited AS MATERIALIZED (
    SELECT r.id, r.state NOT IN ('completed', 'failed', 'released', 'expired') AS is_open
    FROM {schema}.idempotency_record AS r
    WHERE r.purge_after <= (SELECT now FROM moment)
        AND (r.state NOT IN ('completed', 'failed', 'released', 'expired')
            OR r.forget_at > (SELECT now FROM moment)
                AND (r.state = 'expired' OR r.expires_at > (SELECT now FROM moment)))
    ORDER BY r.purge_after LIMIT $1::bigint
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE {schema}.idempotency_record AS r SET purge_after = CASE
    WHEN visited.is_open THEN 'infinity'
    WHEN r.state = 'expired' THEN r.forget_at
    ELSE r.expires_at END
FROM visited WHERE r.id = visited.id
