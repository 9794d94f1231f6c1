-- What weather.sql must have written when January is over, asked of all its files at once: expected/weather_as_of.csv.
WITH observed AS (
    SELECT flights.event_time, flights.dep_delay, weather.time_hour > flights.event_time - INTERVAL 1 HOUR AS fresh,
        CASE WHEN fresh THEN weather.visib END AS visib, CASE WHEN fresh THEN weather.wind_speed END AS wind_speed
    FROM flights ASOF LEFT JOIN weather ON weather.origin = flights.origin AND weather.time_hour <= flights.event_time
    WHERE flights.departed_at IS NOT NULL
)
SELECT
    time_bucket(INTERVAL 1 DAY, event_time)::TIMESTAMP AS window_start,
    CASE WHEN visib >= 10 THEN 'clear' WHEN visib >= 3 THEN 'hazy' WHEN visib >= 0 THEN 'fog' ELSE 'unknown' END AS visibility,
    count(*) AS departed,
    round(avg(dep_delay), 2) AS mean_delay,
    round(max(wind_speed), 1) AS max_wind
FROM observed
GROUP BY ALL
ORDER BY window_start, visibility
