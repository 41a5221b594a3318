-- Returns whether the sentinel is there, a row that is lost together with the records.
SELECT EXISTS (SELECT FROM {schema}.idempotency_record WHERE id = {sentinel}) AS there
