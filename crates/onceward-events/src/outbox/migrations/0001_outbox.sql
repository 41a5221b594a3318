-- The outbox: events from the commit that made them until they are delivered. {schema} stands for
-- the configured schema.

-- Rows are inserted and deleted, and never updated: Debezium's EventRouter reads the table as it is.
CREATE TABLE {schema}.outbox_event (
    position      bigint      GENERATED ALWAYS AS IDENTITY,
    xid           xid8        NOT NULL DEFAULT pg_current_xact_id(),
    id            uuid        NOT NULL,
    lane          smallint    NOT NULL,
    aggregatetype text        NOT NULL,
    aggregateid   text        NOT NULL,
    type          text        NOT NULL,
    payload       jsonb,
    payload_bytes bytea,
    content_type  text        NOT NULL,
    headers       jsonb,
    operation_id  uuid,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT outbox_event_pkey PRIMARY KEY (position),
    CONSTRAINT outbox_event_id_key UNIQUE (id)
)
-- Every row is deleted soon after it was inserted.
WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.01,
    toast.autovacuum_vacuum_cost_delay = 0
);

-- A relay asks for the rows of transactions that its last snapshot did not contain. So it never
-- passes over deleted rows, however long a transaction keeps them from being removed.
CREATE INDEX outbox_event_xid ON {schema}.outbox_event (xid);

COMMENT ON TABLE {schema}.outbox_event IS 'Events that are not delivered yet, in the layout of Debezium''s EventRouter.';
COMMENT ON COLUMN {schema}.outbox_event.position IS 'Increases within an aggregate in the order of commits. Across aggregates it means nothing.';
COMMENT ON COLUMN {schema}.outbox_event.xid IS 'The transaction that published the event.';
COMMENT ON COLUMN {schema}.outbox_event.id IS 'The event''s id, the same whenever it is published or delivered.';
COMMENT ON COLUMN {schema}.outbox_event.lane IS 'The lane of the aggregate: which relay delivers it.';
COMMENT ON COLUMN {schema}.outbox_event.aggregatetype IS 'What the event is about, such as order.';
COMMENT ON COLUMN {schema}.outbox_event.aggregateid IS 'Which one. Events of one aggregate keep their order.';
COMMENT ON COLUMN {schema}.outbox_event.type IS 'What happened, such as OrderCreated.';
COMMENT ON COLUMN {schema}.outbox_event.payload IS 'The content, if it is JSON.';
COMMENT ON COLUMN {schema}.outbox_event.payload_bytes IS 'The content, if it is not JSON.';
COMMENT ON COLUMN {schema}.outbox_event.content_type IS 'The content type of the payload.';
COMMENT ON COLUMN {schema}.outbox_event.headers IS 'Further headers, a JSON object of strings.';
COMMENT ON COLUMN {schema}.outbox_event.operation_id IS 'The operation that published the event, if there is one.';
COMMENT ON COLUMN {schema}.outbox_event.created_at IS 'When the event was published, before its commit.';

CREATE TABLE {schema}.outbox_lane (
    route       text        NOT NULL,
    lane        smallint    NOT NULL,
    owner       uuid,
    fence       bigint      NOT NULL DEFAULT 0,
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    CONSTRAINT outbox_lane_pkey PRIMARY KEY (route, lane)
)
WITH (fillfactor = 50);

COMMENT ON TABLE {schema}.outbox_lane IS 'Shares of a route''s aggregates, each leased by one relay.';
COMMENT ON COLUMN {schema}.outbox_lane.route IS 'The name of the route: relays with other sinks have other routes.';
COMMENT ON COLUMN {schema}.outbox_lane.owner IS 'The relay that has or had the lease.';
COMMENT ON COLUMN {schema}.outbox_lane.fence IS 'Increases with every new owner: a former owner can change nothing.';
COMMENT ON COLUMN {schema}.outbox_lane.lease_until IS 'End of the lease. From then on any relay may take the lane.';

CREATE TABLE {schema}.outbox_relay (
    id            uuid        NOT NULL,
    route         text        NOT NULL,
    name          text        NOT NULL,
    mode          text        NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until   timestamptz NOT NULL,
    waiting_until timestamptz NOT NULL DEFAULT '-infinity',
    CONSTRAINT outbox_relay_pkey PRIMARY KEY (id)
)
WITH (fillfactor = 50);

COMMENT ON TABLE {schema}.outbox_relay IS 'Running relays. The lanes of a route are divided among those whose lease has not ended.';
COMMENT ON COLUMN {schema}.outbox_relay.name IS 'Host and process, for people.';
COMMENT ON COLUMN {schema}.outbox_relay.mode IS 'table or wal: how it finds events.';
COMMENT ON COLUMN {schema}.outbox_relay.lease_until IS 'Until then it counts as running.';
COMMENT ON COLUMN {schema}.outbox_relay.waiting_until IS 'Until then it waits for events, and publishing notifies it. Otherwise it does not: all commits with a notification queue up behind each other.';

CREATE TABLE {schema}.outbox_stalled (
    aggregatetype   text        NOT NULL,
    aggregateid     text        NOT NULL,
    lane            smallint    NOT NULL,
    state           text        NOT NULL CHECK (state IN ('retrying', 'parked')),
    event_id        uuid        NOT NULL,
    attempts        integer     NOT NULL,
    next_attempt_at timestamptz,
    noticed         boolean     NOT NULL,
    reason          text        NOT NULL,
    since           timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT outbox_stalled_pkey PRIMARY KEY (aggregatetype, aggregateid)
);

COMMENT ON TABLE {schema}.outbox_stalled IS 'Aggregates whose next event could not be delivered. The others are not affected.';
COMMENT ON COLUMN {schema}.outbox_stalled.state IS 'retrying: tried again by itself. parked: waits for an operator.';
COMMENT ON COLUMN {schema}.outbox_stalled.event_id IS 'The event that could not be delivered.';
COMMENT ON COLUMN {schema}.outbox_stalled.next_attempt_at IS 'retrying: when it is tried again.';
COMMENT ON COLUMN {schema}.outbox_stalled.noticed IS 'Whether the relay of the lane knows of this state. What an operator changed takes effect then.';
COMMENT ON COLUMN {schema}.outbox_stalled.reason IS 'The sink''s last error, or the operator''s reason.';

CREATE TABLE {schema}.outbox_dead (
    position      bigint      NOT NULL,
    id            uuid        NOT NULL,
    lane          smallint    NOT NULL,
    aggregatetype text        NOT NULL,
    aggregateid   text        NOT NULL,
    type          text        NOT NULL,
    payload       jsonb,
    payload_bytes bytea,
    content_type  text        NOT NULL,
    headers       jsonb,
    operation_id  uuid,
    created_at    timestamptz NOT NULL,
    attempts      integer     NOT NULL,
    reason        text        NOT NULL,
    died_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT outbox_dead_pkey PRIMARY KEY (id)
);

COMMENT ON TABLE {schema}.outbox_dead IS 'Dead letters: events that were taken out of their aggregate''s order, with the reason.';

CREATE TABLE {schema}.outbox_decision (
    number        bigint      GENERATED ALWAYS AS IDENTITY,
    at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    who           text        NOT NULL,
    action        text        NOT NULL,
    aggregatetype text,
    aggregateid   text,
    event_id      uuid,
    reason        text        NOT NULL,
    CONSTRAINT outbox_decision_pkey PRIMARY KEY (number)
);

COMMENT ON TABLE {schema}.outbox_decision IS 'What operators decided about aggregates and events, and why. Nothing changes or removes a row.';
