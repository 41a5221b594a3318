-- Names the operation of this transaction, so that an outbox can derive the ids of its events. Both
-- settings end with the transaction, and a savepoint that is rolled back restores them.
--
-- $1 operation id
SELECT set_config('onceward.operation', $1, true), set_config('onceward.events', '0', true)
