-- Expires or removes at most $1 due rows, and skips locked ones. Running and unknown records do not
-- change, apart from the time of the next visit.
WITH moment AS MATERIALIZED (SELECT date_trunc('milliseconds', clock_timestamp()) AS now),
due AS MATERIALIZED (
    SELECT r.id, CASE
        WHEN r.state NOT IN ('completed', 'failed', 'released', 'expired') THEN 'open'
        WHEN r.forget_at <= (SELECT now FROM moment) THEN 'remove'
        WHEN r.state <> 'expired' AND r.expires_at <= (SELECT now FROM moment) THEN 'bury'
        ELSE 'later' END AS what
    FROM {schema}.idempotency_record AS r
    WHERE r.purge_after <= (SELECT now FROM moment)
    ORDER BY r.purge_after LIMIT $1::bigint
    FOR UPDATE OF r SKIP LOCKED
),
{removal},
postponed AS (
    UPDATE {schema}.idempotency_record AS r SET purge_after = CASE
        WHEN due.what = 'open' THEN 'infinity'
        WHEN r.state = 'expired' THEN r.forget_at
        ELSE r.expires_at END
    FROM due WHERE r.id = due.id AND due.what IN ('open', 'later')
)
SELECT (SELECT count(*) FROM due) AS seen, (SELECT count(*) FROM removed) AS removed,
    (SELECT count(*) FROM buried) AS buried
