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
), removed AS (
    DELETE FROM {schema}.idempotency_record AS r USING due
    WHERE r.id = due.id AND due.what = 'remove'
    RETURNING r.fence
), buried AS (
    UPDATE {schema}.idempotency_record AS r SET
        state = 'expired', version = r.version + 1, purge_after = r.forget_at,
        request_sketch = NULL, request_path = NULL, outcome_content = NULL, outcome_codec = NULL,
        resource_type = NULL, resource_id = NULL, response_body = NULL,
        http_status = NULL, error_code = NULL
    FROM due WHERE r.id = due.id AND due.what = 'bury'
    RETURNING r.id
), floor AS (
    UPDATE {schema}.fence_floor SET fence = forgotten.fence
    FROM (SELECT max(fence) AS fence FROM removed) AS forgotten
    WHERE only_row AND forgotten.fence > fence_floor.fence
)
SELECT (SELECT count(*) FROM due) AS seen, (SELECT count(*) FROM removed) AS removed,
    (SELECT count(*) FROM buried) AS buried
