-- What departures.sql must have written when January is over, asked of all its files at once: expected/departures.csv.
SELECT
    origin,
    time_bucket(INTERVAL 1 HOUR, event_time) AS window_start,
    count(departed_at) AS departed,
    count(*) - count(departed_at) AS cancelled,
    round(avg(dep_delay), 2) AS mean_delay,
    max(dep_delay) AS max_delay,
    round(count(*) FILTER (dep_delay > 15) / nullif(count(departed_at), 0), 3) AS late_share
FROM flights
GROUP BY origin, window_start
ORDER BY window_start, origin
