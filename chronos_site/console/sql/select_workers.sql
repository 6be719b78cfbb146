-- The processes that deliver, the freshest first.
SELECT name, queue, started_at, in_flight, rate_per_s, stopping,
       greatest(0, extract(epoch FROM clock_timestamp() - heartbeat_at))::float8 AS age_s
FROM execution_worker
WHERE heartbeat_at > clock_timestamp() - interval '1 day'
ORDER BY queue, name, heartbeat_at DESC
LIMIT 500;
