-- Departures and delays by day and visibility: every flight with the weather that was observed within the hour before it left.
SET 'pipeline.name' = 'weather_delays';

CREATE TABLE weather_delays (
    window_start TIMESTAMP(3),
    visibility STRING,
    departed BIGINT,
    mean_delay DOUBLE,  -- minutes
    max_wind DOUBLE     -- miles per hour
);

-- A join within an interval: a flight waits for weather that may still come, and weather for flights. Both are forgotten by the
-- watermark. The join keeps event time, so a window can stand above it.
INSERT INTO weather_delays
WITH observed AS (
    SELECT flights.event_time, flights.dep_delay, weather.visib, weather.wind_speed
    FROM flights LEFT JOIN weather
        ON weather.origin = flights.origin
        AND weather.time_hour > flights.event_time - INTERVAL '1' HOUR
        AND weather.time_hour <= flights.event_time
    WHERE flights.departed_at IS NOT NULL
), banded AS (
    SELECT *, CASE WHEN visib >= 10 THEN 'clear' WHEN visib >= 3 THEN 'hazy' WHEN visib >= 0 THEN 'fog' ELSE 'unknown' END AS visibility
    FROM observed
)
SELECT window_start, visibility, COUNT(*) AS departed, ROUND(AVG(dep_delay), 2) AS mean_delay, ROUND(MAX(wind_speed), 1) AS max_wind
FROM TUMBLE(TABLE banded, DESCRIPTOR(event_time), INTERVAL '1' DAY)
GROUP BY window_start, window_end, visibility;
