-- Removes relay $1, and relays that have not been running for a day.
DELETE FROM {schema}.outbox_relay
WHERE id = $1 OR lease_until < clock_timestamp() - interval '1 day'
