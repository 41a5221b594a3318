-- Whether the row is there that is there as long as the others are.
SELECT EXISTS (SELECT FROM {schema}.idempotency_record WHERE id = {sentinel}) AS there
