-- Writes down that an aggregate is stalled: type $1, id $2, lane $3, fence $4, state $5, event $6,
-- attempts $7, wait in ms $8, reason $9, route $10. Nothing if another relay has the lane, or if an operator has
-- parked the aggregate. Returns whether it was written.
WITH held AS MATERIALIZED (
    SELECT FROM {schema}.outbox_lane WHERE route = $10 AND lane = $3::smallint AND fence = $4 FOR SHARE
)
INSERT INTO {schema}.outbox_stalled AS stalled (
    aggregatetype, aggregateid, lane, state, event_id, attempts, next_attempt_at, noticed, reason
)
SELECT $1, $2, $3::smallint, $5, $6, $7,
    clock_timestamp() + $8::bigint * interval '1 millisecond', true, $9
FROM held
ON CONFLICT (aggregatetype, aggregateid) DO UPDATE SET
    state = excluded.state, event_id = excluded.event_id, attempts = excluded.attempts,
    next_attempt_at = excluded.next_attempt_at, reason = excluded.reason, noticed = true,
    updated_at = clock_timestamp(),
    since = CASE WHEN stalled.state = excluded.state THEN stalled.since ELSE clock_timestamp() END
    WHERE stalled.state <> 'parked'
RETURNING true
