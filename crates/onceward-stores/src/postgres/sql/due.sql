-- Returns whether any record is due.
SELECT EXISTS (
    SELECT FROM {schema}.idempotency_record AS r
    WHERE r.purge_after <= date_trunc('milliseconds', clock_timestamp())
        AND r.state IN ('completed', 'failed', 'released', 'expired')
        AND (r.forget_at <= date_trunc('milliseconds', clock_timestamp())
            OR (r.state <> 'expired' AND r.expires_at <= date_trunc('milliseconds', clock_timestamp())))
)
