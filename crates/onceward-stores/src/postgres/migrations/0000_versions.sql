-- The migrations that this schema has. Created before all others.

CREATE SCHEMA IF NOT EXISTS {schema};

CREATE TABLE IF NOT EXISTS {schema}.{versions} (
    version       integer     NOT NULL,
    name          text        NOT NULL,
    oldest_reader integer     NOT NULL,
    applied_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT {versions}_pkey PRIMARY KEY (version)
);

COMMENT ON TABLE {schema}.{versions} IS 'The migrations that this schema has, one row each.';
COMMENT ON COLUMN {schema}.{versions}.version IS 'Number of the migration.';
COMMENT ON COLUMN {schema}.{versions}.name IS 'What it brought.';
COMMENT ON COLUMN {schema}.{versions}.oldest_reader IS 'Releases that know fewer migrations than this refuse the schema.';
COMMENT ON COLUMN {schema}.{versions}.applied_at IS 'When it was applied.';
