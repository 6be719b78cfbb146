-- RETRYING that are due, and QUEUED whose message did not take, of these jobs: QUEUED until their message must have
-- taken.
WITH taken AS (
    SELECT r.id
    FROM unnest(%(jobs)s::uuid[], %(shares)s::int[]) AS job(id, share)
    CROSS JOIN LATERAL (
        SELECT d.id FROM bulk_bulkrecord d
        WHERE d.bulk_job_id = job.id AND d.due_at <= clock_timestamp()
        ORDER BY d.due_at LIMIT job.share
        FOR UPDATE SKIP LOCKED
    ) r
)
UPDATE bulk_bulkrecord r
SET state = 'QUEUED', due_at = clock_timestamp() + %(lease_s)s * interval '1 second'
FROM taken
WHERE r.id = taken.id AND r.state IN ('RETRYING', 'QUEUED')
RETURNING r.id, r.bulk_job_id;
