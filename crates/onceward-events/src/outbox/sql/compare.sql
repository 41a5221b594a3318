-- Whether the event with the id $1 has this content: aggregate type $2, aggregate id $3, type $4,
-- JSON $5, bytes $6, content type $7, headers $8. No row if there is no such event any more.
SELECT (aggregatetype, aggregateid, type, payload, payload_bytes, content_type, headers)
    IS NOT DISTINCT FROM ($2, $3, $4, $5::text::jsonb, $6::bytea, $7, $8::text::jsonb) AS same
FROM {schema}.outbox_event WHERE id = $1::uuid
