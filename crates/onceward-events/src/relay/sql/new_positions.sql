-- Positions of events of lanes $1 that are visible in the snapshot $2 (null: now) and were not in
-- the snapshot $3, after position $4, at most $5, of aggregate types $6 (null: all) without types $7
-- (null: none); and the snapshot.
--
-- Events of transactions that were open at snapshot $3 are among them, whatever their positions.
-- Nothing waits for a transaction that is still open.
WITH moment AS MATERIALIZED (
    SELECT coalesce($2::text::pg_snapshot, pg_current_snapshot()) AS snapshot
), fresh AS MATERIALIZED (
    SELECT event.position
    FROM {schema}.outbox_event AS event
    WHERE (event.xid >= pg_snapshot_xmax($3::text::pg_snapshot)
            OR event.xid = ANY (ARRAY(SELECT pg_snapshot_xip($3::text::pg_snapshot))))
        AND event.lane = ANY ($1::smallint[])
        AND ($6::text[] IS NULL OR event.aggregatetype = ANY ($6::text[]))
        AND ($7::text[] IS NULL OR event.aggregatetype <> ALL ($7::text[]))
        AND pg_visible_in_snapshot(event.xid, (SELECT snapshot FROM moment))
)
SELECT snapshot::text, ARRAY(
    SELECT position FROM fresh WHERE position > $4::bigint ORDER BY position LIMIT $5::bigint
) AS positions
FROM moment
