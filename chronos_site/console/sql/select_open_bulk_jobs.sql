-- Bulk jobs that have not ended, the newest first.
SELECT b.id, w.name AS workspace, b.file_name AS file, b.state, b.total,
       b.succeeded + b.failed + b.invalid + b.cancelled AS ended, b.failed, b.rate_per_s
FROM bulk_bulkjob b
JOIN tenancy_workspace w ON w.id = b.workspace_id
WHERE b.state IN ('UPLOADED', 'INGESTING', 'RUNNING', 'PAUSED')
  AND (%(workspace_ids)s::uuid[] IS NULL OR b.workspace_id = ANY(%(workspace_ids)s::uuid[]))
ORDER BY b.id DESC
LIMIT 50;
