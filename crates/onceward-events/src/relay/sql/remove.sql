-- Removes delivered events: positions $1 with ids $2 of lanes $3 of route $5, whose lease the
-- relay has under fences $4. Those of lanes that another relay has taken stay: it removes them.
DELETE FROM {schema}.outbox_event AS event
USING unnest($1::bigint[], $2::uuid[], $3::smallint[], $4::bigint[])
        AS delivered (position, id, lane, fence),
    {schema}.outbox_lane AS lane
WHERE event.position = delivered.position AND event.id = delivered.id
    AND lane.route = $5 AND lane.lane = delivered.lane AND lane.fence = delivered.fence
