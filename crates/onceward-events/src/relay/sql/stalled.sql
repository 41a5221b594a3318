-- Aggregates of lanes $1 that are stalled.
SELECT aggregatetype, aggregateid, state, attempts, noticed,
    coalesce(greatest(date_part('epoch', next_attempt_at - clock_timestamp()) * 1000, 0), 0)::bigint
        AS wait_ms
FROM {schema}.outbox_stalled WHERE lane = ANY ($1::smallint[])
