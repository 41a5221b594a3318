event.position, event.id, event.lane, event.aggregatetype, event.aggregateid, event.type,
event.payload::text AS payload, event.payload_bytes, event.content_type,
event.headers::text AS headers, event.operation_id,
(date_part('epoch', event.created_at) * 1000)::bigint AS created_at_ms
