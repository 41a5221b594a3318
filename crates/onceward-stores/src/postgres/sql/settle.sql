-- Settles open records of their holders, and returns the ids and the end of their retention. The
-- others are decided one by one. purge_after stays if the prediction is near enough, so that no
-- index changes.
--
-- $1 id, $2 owner, $3 fence, $4 state, $5 keep in ms, $6 tombstone in ms, $7 content, $8 codec,
-- $9 body, $10 resource type, $11 resource id, $12 slack in ms, $13 cause, $14 status, $15 error
-- code, all arrays; $16 the channel.
WITH moment AS MATERIALIZED (SELECT date_trunc('milliseconds', clock_timestamp()) AS now),
call AS MATERIALIZED (
    SELECT call.*,
        CASE WHEN state <> 'unknown' THEN now + keep_ms * interval '1 millisecond' END AS expires_at,
        CASE WHEN state <> 'unknown'
            THEN now + (keep_ms + tombstone_ms) * interval '1 millisecond' END AS forget_at,
        now
    FROM moment, unnest(
        $1::bytea[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[],
        $7::text[], $8::text[], $9::bytea[], $10::text[], $11::text[], $12::bigint[],
        $13::text[], $14::integer[], $15::text[]
    ) AS call (
        id, owner_token, fence, state, keep_ms, tombstone_ms, content, codec, body,
        resource_type, resource_id, slack_ms, unknown_cause, http_status, error_code
    )
)
UPDATE {schema}.idempotency_record AS r SET
    state = call.state,
    locked_until = NULL,
    expires_at = call.expires_at,
    forget_at = call.forget_at,
    purge_after = CASE
        WHEN call.expires_at IS NULL OR (r.purge_after >= call.expires_at
            AND r.purge_after <= call.expires_at + call.slack_ms * interval '1 millisecond')
        THEN r.purge_after ELSE call.expires_at END,
    outcome_content = call.content,
    outcome_codec = call.codec,
    response_body = call.body,
    resource_type = call.resource_type,
    resource_id = call.resource_id,
    unknown_cause = call.unknown_cause,
    http_status = call.http_status,
    error_code = call.error_code,
    updated_at = call.now,
    version = r.version + 1
FROM call
WHERE r.id = call.id AND r.owner_token = call.owner_token AND r.fence = call.fence
    AND (r.state = 'running' OR (r.state = 'unknown' AND call.state <> 'unknown'))
    AND NOT (r.taken_over AND call.state = 'released')
RETURNING r.id, r.expires_at,
    CASE WHEN r.awaited THEN pg_notify($16, encode(substring(r.id FOR 16), 'hex')) IS NULL END AS told
