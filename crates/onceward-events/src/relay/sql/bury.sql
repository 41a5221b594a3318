-- Makes a dead letter of an event: position $1 of lane $2 of route $6 under fence $3, attempts $4,
-- reason $5. The aggregate goes on. Returns whether it was done.
WITH held AS MATERIALIZED (
    SELECT FROM {schema}.outbox_lane WHERE route = $6 AND lane = $2::smallint AND fence = $3 FOR SHARE
), gone AS (
    DELETE FROM {schema}.outbox_event AS event USING held WHERE event.position = $1
    RETURNING event.*
), recovered AS (
    DELETE FROM {schema}.outbox_stalled AS stalled USING gone
    WHERE stalled.aggregatetype = gone.aggregatetype AND stalled.aggregateid = gone.aggregateid
        AND stalled.state = 'retrying'
)
INSERT INTO {schema}.outbox_dead (
    position, id, lane, aggregatetype, aggregateid, type, payload, payload_bytes, content_type,
    headers, operation_id, created_at, attempts, reason
)
SELECT position, id, lane, aggregatetype, aggregateid, type, payload, payload_bytes, content_type,
    headers, operation_id, created_at, $4, $5
FROM gone
RETURNING true
