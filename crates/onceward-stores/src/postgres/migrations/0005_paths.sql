-- The path of the request, for operators. Earlier releases neither read nor write it.

ALTER TABLE {schema}.idempotency_record ADD COLUMN request_path text;

COMMENT ON COLUMN {schema}.idempotency_record.request_path IS 'The path that the request was sent to, without its query. Null if the name of the operation tells it, if a setting leaves it out, or if an earlier release wrote the row.';
