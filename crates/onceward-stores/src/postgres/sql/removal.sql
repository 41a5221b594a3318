-- Removes or expires the rows that `due` has chosen, and remembers the highest fence that is gone.
removed AS (
    DELETE FROM {schema}.idempotency_record AS r USING due
    WHERE r.id = due.id AND due.what = 'remove'
    RETURNING r.fence
), buried AS (
    UPDATE {schema}.idempotency_record AS r SET
        state = 'expired', version = r.version + 1, purge_after = r.forget_at,
        request_sketch = NULL, request_path = NULL, outcome_content = NULL, outcome_codec = NULL,
        resource_type = NULL, resource_id = NULL, response_body = NULL,
        http_status = NULL, error_code = NULL
    FROM due WHERE r.id = due.id AND due.what = 'bury'
    RETURNING r.id
), floor AS (
    UPDATE {schema}.fence_floor SET fence = forgotten.fence
    FROM (SELECT max(fence) AS fence FROM removed) AS forgotten
    WHERE only_row AND forgotten.fence > fence_floor.fence
)
