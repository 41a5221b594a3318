-- Says that the relay knows of parked aggregates: types $1, ids $2.
UPDATE {schema}.outbox_stalled AS stalled SET noticed = true
FROM unnest($1::text[], $2::text[]) AS parked (aggregatetype, aggregateid)
WHERE stalled.aggregatetype = parked.aggregatetype
    AND stalled.aggregateid = parked.aggregateid AND stalled.state = 'parked'
