-- Takes up to $2 lanes of route $4 without a live lease for relay $1, for $3 ms. Returns them with their new
-- fences.
UPDATE {schema}.outbox_lane AS lane
SET owner = $1, fence = lane.fence + 1,
    lease_until = clock_timestamp() + $3::bigint * interval '1 millisecond'
FROM (
    SELECT lane FROM {schema}.outbox_lane WHERE route = $4 AND lease_until <= clock_timestamp()
    ORDER BY lane LIMIT $2::bigint FOR UPDATE SKIP LOCKED
) AS free
WHERE lane.route = $4 AND lane.lane = free.lane
RETURNING lane.lane, lane.fence
