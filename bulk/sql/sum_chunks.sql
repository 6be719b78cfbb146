-- The counts of these jobs, from their chunks, and whether every chunk is DONE.
SELECT job.id, coalesce(sum(c.succeeded), 0), coalesce(sum(c.failed), 0), coalesce(sum(c.cancelled), 0),
       coalesce(bool_and(c.state = 'DONE'), true)
FROM unnest(%(jobs)s::uuid[], %(firsts)s::uuid[], %(lasts)s::uuid[]) AS job(id, first, last)
LEFT JOIN bulk_bulkchunk c ON c.id BETWEEN job.first AND job.last
GROUP BY job.id;
