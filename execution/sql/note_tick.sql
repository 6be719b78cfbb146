-- Note a tick of a loop; a gap before it, or the first tick ever, begins a new steady time.
INSERT INTO execution_loop AS l (name, ticked_at, steady_since)
VALUES (%(name)s, clock_timestamp(), clock_timestamp())
ON CONFLICT (name) DO UPDATE
SET steady_since = CASE WHEN l.ticked_at < clock_timestamp() - %(gap_s)s * interval '1 second'
                        THEN excluded.ticked_at ELSE l.steady_since END,
    ticked_at = excluded.ticked_at
RETURNING extract(epoch FROM clock_timestamp() - greatest(l.steady_since, pg_postmaster_start_time()));
