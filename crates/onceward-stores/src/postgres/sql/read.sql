-- The records of the ids $1, and the time.
SELECT false AS granted, date_trunc('milliseconds', clock_timestamp()) AS now, {columns}
FROM {schema}.idempotency_record AS r WHERE r.id = ANY ($1::bytea[])
