-- The number of running relays, of lanes without a live lease, and of the lanes of relay $1.
SELECT
    (SELECT count(*) FROM {schema}.outbox_relay WHERE lease_until > clock_timestamp()) AS relays,
    count(*) FILTER (WHERE lease_until <= clock_timestamp()) AS free,
    count(*) FILTER (WHERE owner = $1 AND lease_until > clock_timestamp()) AS own
FROM {schema}.outbox_lane
