-- Says that relay $1 waits for events for $2 ms (0: no longer), so that publishing notifies it.
UPDATE {schema}.outbox_relay SET waiting_until = CASE
    WHEN $2::bigint = 0 THEN '-infinity'
    ELSE clock_timestamp() + $2::bigint * interval '1 millisecond' END
WHERE id = $1
