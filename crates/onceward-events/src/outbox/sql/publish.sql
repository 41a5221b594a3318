-- Publishes events within the caller's transaction. Returns a row for each, in their order: its id,
-- and whether it was inserted; none for an id that is taken.
--
-- The lock of an aggregate is held until the transaction ends, and taken before its positions are
-- drawn. So positions of an aggregate follow the order of commits. Locks are taken in one order, so
-- that two statements never wait for each other in a circle.
--
-- An event without an id gets one from the transaction's operation (`set_operation.sql` of the store)
-- and the number of events so far. Without an operation it gets none, and is not inserted.
--
-- $1 id, $2 lane, $3 lock, $4 aggregate type, $5 aggregate id, $6 type, $7 JSON, $8 bytes,
-- $9 content type, $10 headers: arrays; $11 class of the locks, $12 the channel
WITH call AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::uuid[], $2::smallint[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::text[],
        $8::bytea[], $9::text[], $10::text[]
    ) WITH ORDINALITY AS call (
        id, lane, lock, aggregatetype, aggregateid, type, payload, payload_bytes, content_type,
        headers, number
    )
), locked AS MATERIALIZED (
    SELECT count(pg_advisory_xact_lock($11::integer, lock)) AS locks
    FROM (SELECT DISTINCT lock FROM call ORDER BY lock) AS ordered
), transaction AS MATERIALIZED (
    SELECT nullif(current_setting('onceward.operation', true), '') AS operation,
        coalesce(nullif(current_setting('onceward.events', true), ''), '0')::bigint AS events
), counted AS MATERIALIZED (
    SELECT operation, events,
        set_config('onceward.events', (events + (SELECT count(*) FROM call))::text, true)
    FROM transaction
), event AS MATERIALIZED (
    SELECT call.*, counted.operation::uuid AS operation_id, coalesce(call.id, (
        SELECT encode(set_byte(set_byte(
            hash, 6, get_byte(hash, 6) & 15 | 128), 8, get_byte(hash, 8) & 63 | 128), 'hex')::uuid
        FROM (SELECT substring(sha256(convert_to(
            'onceward.event:' || counted.operation || ':' || (counted.events + call.number), 'UTF8'
        )) FOR 16) AS hash) AS hashed
    )) AS event_id
    FROM call CROSS JOIN counted
), inserted AS (
    INSERT INTO {schema}.outbox_event (
        id, lane, aggregatetype, aggregateid, type, payload, payload_bytes, content_type, headers,
        operation_id
    )
    SELECT event_id, lane, aggregatetype, aggregateid, type, payload::jsonb, payload_bytes,
        content_type, headers::jsonb, operation_id
    FROM event CROSS JOIN locked
    WHERE event_id IS NOT NULL AND locks >= 0
    ORDER BY number
    ON CONFLICT (id) DO NOTHING
    RETURNING id
)
SELECT event.event_id, inserted.id IS NOT NULL AS inserted,
    (SELECT pg_notify($12, '') IS NULL WHERE EXISTS (
        SELECT FROM {schema}.outbox_lane AS lane JOIN {schema}.outbox_relay AS relay
            ON relay.id = lane.owner
        WHERE lane.lane = ANY ($2::smallint[]) AND relay.waiting_until > clock_timestamp()
    )) AS notified
FROM event LEFT JOIN inserted ON inserted.id = event.event_id
ORDER BY event.number
