-- Ends the leases of lanes of route $4 that relay $1 has under these fences.
UPDATE {schema}.outbox_lane AS lane SET lease_until = '-infinity'
FROM unnest($2::smallint[], $3::bigint[]) AS mine (lane, fence)
WHERE lane.route = $4 AND lane.lane = mine.lane AND lane.fence = mine.fence AND lane.owner = $1
