-- Invalidates all existing cache entries.
UPDATE {schema}.cache_generation SET generation = generation + 1
