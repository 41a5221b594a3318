-- Records by state, and the size of tables and indexes on the disk.
SELECT state, count(*) AS records,
    pg_total_relation_size('{schema}.idempotency_record'::regclass) AS bytes
FROM {schema}.idempotency_record WHERE id <> {sentinel} GROUP BY state
