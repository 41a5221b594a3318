-- Generation and secret of valid cache entries.

CREATE TABLE {schema}.cache_generation (
    only_row   boolean NOT NULL DEFAULT true CHECK (only_row),
    generation bigint  NOT NULL DEFAULT 1,
    secret     bytea   NOT NULL,
    CONSTRAINT cache_generation_pkey PRIMARY KEY (only_row)
);
-- Two random UUIDs: 244 bits of the server's strong random numbers.
INSERT INTO {schema}.cache_generation (secret)
VALUES (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));

COMMENT ON TABLE {schema}.cache_generation IS 'One row: what entries of a cache before this store must carry to be believed.';
COMMENT ON COLUMN {schema}.cache_generation.only_row IS 'Keeps the table to one row.';
COMMENT ON COLUMN {schema}.cache_generation.generation IS 'Entries of an earlier generation are not believed. After changing records by hand: UPDATE … SET generation = generation + 1.';
COMMENT ON COLUMN {schema}.cache_generation.secret IS 'Key by which entries are authenticated: whoever can only write to the cache cannot make one. Not to be shown.';
