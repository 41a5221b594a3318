-- What became of the transaction $1, of the process $2. A transaction that still goes on has lost
-- its client (which asks here, on another connection): it is ended.
SELECT pg_xact_status($1::text::xid8), (
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid = $2::integer AND backend_xid = $1::text::xid8::xid
)
