-- Renews a relay and the leases of its lanes. Returns the lanes that it still has. A lease that has
-- ended is renewed too if no other relay has taken the lane since.
--
-- $1 relay, $2 name, $3 mode, $4 lanes, $5 their fences, $6 lease in ms, $7 route
WITH relay AS (
    INSERT INTO {schema}.outbox_relay AS relay (id, route, name, mode, lease_until)
    VALUES ($1, $7, $2, $3, clock_timestamp() + $6::bigint * interval '1 millisecond')
    ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until, mode = excluded.mode
)
UPDATE {schema}.outbox_lane AS lane
SET lease_until = clock_timestamp() + $6::bigint * interval '1 millisecond'
FROM unnest($4::smallint[], $5::bigint[]) AS mine (lane, fence)
WHERE lane.route = $7 AND lane.lane = mine.lane AND lane.fence = mine.fence AND lane.owner = $1
RETURNING lane.lane
