-- The same as weather.sql, as a temporal join: every flight with the newest weather that had been observed when it left, unless that was
-- more than an hour ago.
SET 'pipeline.name' = 'weather_as_of';

CREATE TABLE weather_as_of (
    window_start TIMESTAMP(3),
    visibility STRING,
    departed BIGINT,
    mean_delay DOUBLE,  -- minutes
    max_wind DOUBLE     -- miles per hour
);

-- The newest observation of each airport, read as its versions: one is valid from its time to that of the next.
CREATE TEMPORARY VIEW weather_now AS
SELECT origin, time_hour, visib, wind_speed
FROM weather
QUALIFY ROW_NUMBER() OVER (PARTITION BY origin ORDER BY time_hour DESC) = 1;

-- A flight waits until the watermark has passed it; versions that no flight can need any more are dropped.
INSERT INTO weather_as_of
WITH observed AS (
    SELECT flights.event_time, flights.dep_delay, now.visib, now.wind_speed
    FROM flights LEFT JOIN weather_now FOR SYSTEM_TIME AS OF flights.event_time AS now
        ON now.origin = flights.origin AND now.time_hour > flights.event_time - INTERVAL '1' HOUR
    WHERE flights.departed_at IS NOT NULL
), banded AS (
    SELECT *, CASE WHEN visib >= 10 THEN 'clear' WHEN visib >= 3 THEN 'hazy' WHEN visib >= 0 THEN 'fog' ELSE 'unknown' END AS visibility
    FROM observed
)
SELECT window_start, visibility, COUNT(*) AS departed, ROUND(AVG(dep_delay), 2) AS mean_delay, ROUND(MAX(wind_speed), 1) AS max_wind
FROM TUMBLE(TABLE banded, DESCRIPTOR(event_time), INTERVAL '1' DAY)
GROUP BY window_start, window_end, visibility;
