-- Records by state, lapsed leases as unknown, the last change of the oldest of each, and the size of
-- tables and indexes on the disk.
--
-- It reads all rows. A partial index over running and unknown rows would avoid that, but its entries
-- would change with every claim and settlement, and neither could be a HOT update.
SELECT state, count(*) AS records, min(updated_at) AS oldest,
    pg_total_relation_size('{schema}.idempotency_record'::regclass) AS bytes
FROM (
    SELECT updated_at, CASE
        WHEN state = 'running' AND locked_until <= now THEN 'unknown'
        ELSE state END AS state
    FROM (SELECT date_trunc('milliseconds', clock_timestamp()) AS now) AS moment,
        {schema}.idempotency_record
    WHERE id <> {sentinel}
) AS standing
GROUP BY state
