-- Aggregates (types $1, ids $2) whose events were delivered again. What an operator has parked
-- meanwhile stays.
DELETE FROM {schema}.outbox_stalled AS stalled
USING unnest($1::text[], $2::text[]) AS recovered (aggregatetype, aggregateid)
WHERE stalled.aggregatetype = recovered.aggregatetype
    AND stalled.aggregateid = recovered.aggregateid AND stalled.state = 'retrying'
