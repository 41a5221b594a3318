-- Marks a running record ($1) as awaited, so that its settlement notifies. Returns no row, or one
-- that says whether the caller should wait.
WITH marked AS (
    UPDATE {schema}.idempotency_record SET awaited = true
    WHERE id = $1::bytea AND state = 'running' AND NOT awaited
    RETURNING id
)
SELECT EXISTS (SELECT FROM marked) OR (r.state = 'running' AND r.awaited) AS waiting
FROM {schema}.idempotency_record AS r WHERE r.id = $1::bytea
