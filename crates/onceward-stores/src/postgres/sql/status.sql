-- The status of transaction $1 of server process $2. A transaction that is still in progress has
-- lost its client (which asks here, on another connection), so it is terminated.
SELECT pg_xact_status($1::text::xid8), (
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid = $2::integer AND backend_xid = $1::text::xid8::xid
)
