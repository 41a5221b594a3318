-- Aggregates of lanes $1 that are stalled, of types $2 (null: all) without types $3 (null: none).
SELECT aggregatetype, aggregateid, state, attempts, noticed,
    coalesce(greatest(date_part('epoch', next_attempt_at - clock_timestamp()) * 1000, 0), 0)::bigint
        AS wait_ms
FROM {schema}.outbox_stalled WHERE lane = ANY ($1::smallint[])
    AND ($2::text[] IS NULL OR aggregatetype = ANY ($2::text[]))
    AND ($3::text[] IS NULL OR aggregatetype <> ALL ($3::text[]))
