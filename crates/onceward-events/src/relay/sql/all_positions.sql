-- Positions of all events of lanes $1 that are visible in the snapshot $2 (null: now), after
-- position $3, at most $4, of aggregate types $5 (null: all) without types $6 (null: none); and the
-- snapshot.
WITH moment AS MATERIALIZED (
    SELECT coalesce($2::text::pg_snapshot, pg_current_snapshot()) AS snapshot
)
SELECT snapshot::text, ARRAY(
    SELECT event.position FROM {schema}.outbox_event AS event
    WHERE event.position > $3::bigint AND event.lane = ANY ($1::smallint[])
        AND ($5::text[] IS NULL OR event.aggregatetype = ANY ($5::text[]))
        AND ($6::text[] IS NULL OR event.aggregatetype <> ALL ($6::text[]))
        AND pg_visible_in_snapshot(event.xid, moment.snapshot)
    ORDER BY event.position LIMIT $4::bigint
) AS positions
FROM moment
