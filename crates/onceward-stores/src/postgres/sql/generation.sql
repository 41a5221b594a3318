-- What entries of a cache must carry, and the time.
SELECT generation, secret, date_trunc('milliseconds', clock_timestamp()) AS now
FROM {schema}.cache_generation
