-- Records, one row for each intent. {schema} stands for the configured schema.

CREATE TABLE {schema}.idempotency_record (
    id                  bytea       NOT NULL,
    operation_id        uuid        NOT NULL,
    owner_token         uuid        NOT NULL,
    fence               bigint      NOT NULL,
    version             bigint      NOT NULL,
    purge_after         timestamptz NOT NULL,
    created_at          timestamptz NOT NULL,
    updated_at          timestamptz NOT NULL,
    locked_until        timestamptz,
    expires_at          timestamptz,
    forget_at           timestamptz,
    attempts            integer     NOT NULL,
    taken_over          boolean     NOT NULL,
    awaited             boolean     NOT NULL DEFAULT false,
    state               text        NOT NULL,
    request_fingerprint bytea       NOT NULL,
    tenant_id           text        NOT NULL,
    caller_id           text        NOT NULL,
    operation_name      text        NOT NULL,
    api_version         text,
    parent_resource     text,
    region              text,
    idempotency_key     text,
    request_sketch      bytea,
    outcome_content     text,
    outcome_codec       text,
    resource_type       text,
    resource_id         text,
    response_body       bytea,
    CONSTRAINT idempotency_record_pkey PRIMARY KEY (id)
)
-- Leaves room on each page for new versions of its rows, so that a settlement touches no index.
-- Vacuum runs early, because every record is updated at least once and finally deleted.
WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    toast.autovacuum_vacuum_scale_factor = 0.05
);

-- The only index beside the primary key. It covers neither state nor lease, and purge_after is
-- predicted when the row is inserted, so renewals and most settlements touch no index (HOT).
CREATE INDEX idempotency_record_purge ON {schema}.idempotency_record (purge_after);

COMMENT ON TABLE {schema}.idempotency_record IS 'One row an intent: who may run it, and what came of it.';
COMMENT ON COLUMN {schema}.idempotency_record.id IS 'Keyed hash over scope and key (32 bytes). The key itself is only stored where the policy says so.';
COMMENT ON COLUMN {schema}.idempotency_record.operation_id IS 'Public name of the operation; the same across release and takeover.';
COMMENT ON COLUMN {schema}.idempotency_record.owner_token IS 'Secret of the last grant: who knows it may renew and settle. Not to be shown.';
COMMENT ON COLUMN {schema}.idempotency_record.fence IS 'Number of the last grant: strictly increasing per id, and at least its time in milliseconds.';
COMMENT ON COLUMN {schema}.idempotency_record.version IS 'Counts the changes under one fence: what a change compares before it writes.';
COMMENT ON COLUMN {schema}.idempotency_record.purge_after IS 'When cleaning up looks at the row. Never before it is due; infinity while there is nothing to look at.';
COMMENT ON COLUMN {schema}.idempotency_record.created_at IS 'First grant.';
COMMENT ON COLUMN {schema}.idempotency_record.updated_at IS 'Last change.';
COMMENT ON COLUMN {schema}.idempotency_record.locked_until IS 'running: when the lease lapses. From then on the outcome is unknown, and never free.';
COMMENT ON COLUMN {schema}.idempotency_record.expires_at IS 'Settled: until then the outcome is replayed.';
COMMENT ON COLUMN {schema}.idempotency_record.forget_at IS 'Settled: until then the key is answered as expired; afterwards it is new.';
COMMENT ON COLUMN {schema}.idempotency_record.attempts IS 'How often the intent was granted.';
COMMENT ON COLUMN {schema}.idempotency_record.taken_over IS 'Whether an owner before the last one lapsed.';
COMMENT ON COLUMN {schema}.idempotency_record.awaited IS 'Whether somebody waits: only then a settlement notifies.';
COMMENT ON COLUMN {schema}.idempotency_record.state IS 'running, completed, failed, released, unknown or expired, as written last; a lapsed lease and a past retention count at once.';
COMMENT ON COLUMN {schema}.idempotency_record.request_fingerprint IS 'What was asked for: one byte of rules, then a SHA-256.';
COMMENT ON COLUMN {schema}.idempotency_record.tenant_id IS 'Scope: who owns the data.';
COMMENT ON COLUMN {schema}.idempotency_record.caller_id IS 'Scope: who sent the command.';
COMMENT ON COLUMN {schema}.idempotency_record.operation_name IS 'Scope: which command it is.';
COMMENT ON COLUMN {schema}.idempotency_record.api_version IS 'Scope: the version of the API, where it counts.';
COMMENT ON COLUMN {schema}.idempotency_record.parent_resource IS 'Scope: the resource that the command works under, where it counts.';
COMMENT ON COLUMN {schema}.idempotency_record.region IS 'Scope: the region, where it counts.';
COMMENT ON COLUMN {schema}.idempotency_record.idempotency_key IS 'The client''s key, only where the policy says to keep it.';
COMMENT ON COLUMN {schema}.idempotency_record.request_sketch IS 'Six bytes a part of the request: tells in what a mismatching one differs, and not what was in it.';
COMMENT ON COLUMN {schema}.idempotency_record.outcome_content IS 'How much of the reply response_body is: whole, reference or omitted.';
COMMENT ON COLUMN {schema}.idempotency_record.outcome_codec IS 'Who can read response_body.';
COMMENT ON COLUMN {schema}.idempotency_record.resource_type IS 'What the operation made or changed.';
COMMENT ON COLUMN {schema}.idempotency_record.resource_id IS 'Which one.';
COMMENT ON COLUMN {schema}.idempotency_record.response_body IS 'The outcome. Above about 2 kB PostgreSQL keeps it apart from the row (TOAST), where updates leave it alone.';

CREATE TABLE {schema}.fence_floor (
    only_row boolean NOT NULL DEFAULT true CHECK (only_row),
    fence    bigint  NOT NULL,
    CONSTRAINT fence_floor_pkey PRIMARY KEY (only_row)
);
INSERT INTO {schema}.fence_floor (fence) VALUES (0);

COMMENT ON TABLE {schema}.fence_floor IS 'One row: the highest fence of all removed records. New fences lie above it, whatever the clock says.';
COMMENT ON COLUMN {schema}.fence_floor.only_row IS 'Keeps the table to one row.';
COMMENT ON COLUMN {schema}.fence_floor.fence IS 'The highest fence that was forgotten.';
