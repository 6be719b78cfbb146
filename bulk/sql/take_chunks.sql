-- WAITING → QUEUED for the next chunks of these jobs, in the order of their files.
WITH taken AS (
    SELECT c.id, c.again
    FROM unnest(%(jobs)s::uuid[], %(shares)s::int[]) AS job(id, share)
    CROSS JOIN LATERAL (
        SELECT w.id, w.again FROM bulk_bulkchunk w
        WHERE w.bulk_job_id = job.id AND w.state = 'WAITING'
        ORDER BY w.id LIMIT job.share
        FOR UPDATE SKIP LOCKED
    ) c
)
UPDATE bulk_bulkchunk c
SET state = 'QUEUED', again = false, lease_until = clock_timestamp() + %(lease_s)s * interval '1 second'
FROM taken
WHERE c.id = taken.id
RETURNING c.id, c.bulk_job_id, c.first_row, c.rows, taken.again;
