-- The generation and the secret of valid cache entries, and the time.
SELECT generation, secret, date_trunc('milliseconds', clock_timestamp()) AS now
FROM {schema}.cache_generation
