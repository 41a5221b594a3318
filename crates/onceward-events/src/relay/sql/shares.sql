-- The number of running relays of route $2, of its lanes without a live lease, and of those of relay
-- $1.
SELECT
    (SELECT count(*) FROM {schema}.outbox_relay
        WHERE route = $2 AND lease_until > clock_timestamp()) AS relays,
    count(*) FILTER (WHERE lease_until <= clock_timestamp()) AS free,
    count(*) FILTER (WHERE owner = $1 AND lease_until > clock_timestamp()) AS own
FROM {schema}.outbox_lane WHERE route = $2
