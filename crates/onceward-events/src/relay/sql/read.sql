-- The events at positions $1, in their order.
SELECT {columns} FROM {schema}.outbox_event AS event
WHERE event.position = ANY ($1::bigint[]) ORDER BY event.position
