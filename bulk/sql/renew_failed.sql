-- FAILED → PENDING for the rows of these chunks, which a person has tried again. Their attempts go on counting, but not
-- against the policy.
UPDATE bulk_bulkrecord r
SET state = 'PENDING', state_reason = '', attempts_before = r.attempt, started_at = NULL, finished_at = NULL,
    unknown_outcomes = 0, flow_wait_s = 0
FROM unnest(%(chunks)s::uuid[], %(lasts)s::uuid[]) AS span(chunk, last)
WHERE r.id BETWEEN span.chunk AND span.last AND r.state = 'FAILED';
