-- Why an outcome is unknown, and two properties of outcomes that people search for. Earlier releases
-- neither read nor write these columns: they are null in their rows.

ALTER TABLE {schema}.idempotency_record
    ADD COLUMN unknown_cause text,
    ADD COLUMN http_status   integer,
    ADD COLUMN error_code    text;

COMMENT ON COLUMN {schema}.idempotency_record.unknown_cause IS 'unknown: why, for example lapsed, dropped, panicked, shutdown, status 502, cut, timeout or reported. Null if an earlier release wrote the row.';
COMMENT ON COLUMN {schema}.idempotency_record.http_status IS 'The HTTP status of the stored reply.';
COMMENT ON COLUMN {schema}.idempotency_record.error_code IS 'The error code of a stored failure, from its body or its handler.';
