-- Makes the lanes of route $1 that are missing.
INSERT INTO {schema}.outbox_lane (route, lane) SELECT $1, generate_series(0, 63)
ON CONFLICT (route, lane) DO NOTHING
