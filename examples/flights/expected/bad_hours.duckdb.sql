-- What bad_hours.sql must have written when January is over, asked of all its files at once: expected/bad_hours.csv.
WITH cancelled AS (
    SELECT origin, time_bucket(INTERVAL 1 HOUR, event_time) AS window_start, list(carrier || flight ORDER BY carrier, flight) AS cancelled
    FROM flights WHERE departed_at IS NULL GROUP BY ALL
), foggy AS (
    SELECT origin, time_bucket(INTERVAL 1 HOUR, time_hour) AS window_start, list(visib ORDER BY time_hour) AS visibility
    FROM weather WHERE visib < 3 GROUP BY ALL
)
SELECT origin, window_start, cancelled, visibility
FROM cancelled FULL JOIN foggy USING (origin, window_start)
ORDER BY window_start, origin
