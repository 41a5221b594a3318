-- Entries of a cache made before this are not believed any more.
UPDATE {schema}.cache_generation SET generation = generation + 1
