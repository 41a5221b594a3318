-- Up to $5 events of an aggregate (type $1, id $2) that are visible in the snapshot $3, after position
-- $4, in their order.
SELECT {columns} FROM {schema}.outbox_event AS event
WHERE event.aggregatetype = $1 AND event.aggregateid = $2 AND event.position > $4
    AND pg_visible_in_snapshot(event.xid, $3::text::pg_snapshot)
ORDER BY event.position LIMIT $5::bigint
