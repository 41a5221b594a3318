-- Visits the rows of the ids $1 again in an hour: they are due and cannot be read.
UPDATE {schema}.idempotency_record SET purge_after = clock_timestamp() + interval '1 hour'
WHERE id = ANY ($1::bytea[])
