-- The cases, and the results of bulks. Processes that start at the same time wait for each other.
BEGIN;
SELECT pg_advisory_xact_lock(20270618);

CREATE TABLE IF NOT EXISTS cases (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    title text NOT NULL,
    status text NOT NULL,
    version bigint NOT NULL
);

CREATE TABLE IF NOT EXISTS bulk_operation (
    operation_id uuid PRIMARY KEY,
    tenant_id text NOT NULL,
    caller_id text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- The requests for a bulk. The refusals of a request name it, so its id leads to the bulk.
CREATE TABLE IF NOT EXISTS bulk_request (
    request_id uuid PRIMARY KEY,
    operation_id uuid NOT NULL REFERENCES bulk_operation
);

CREATE TABLE IF NOT EXISTS bulk_item_result (
    operation_id uuid NOT NULL REFERENCES bulk_operation,
    client_item_id text NOT NULL,
    position bigint NOT NULL,
    target_id bigint NOT NULL,
    -- pending, succeeded or failed. While an item runs, a transaction holds its row.
    state text NOT NULL DEFAULT 'pending',
    result_resource_id text,
    failure_code text,
    retryable boolean,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (operation_id, client_item_id)
);
COMMIT;
