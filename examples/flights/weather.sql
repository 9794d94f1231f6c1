-- Departures and delays by day and visibility: every flight with the weather that was observed within the hour before it left. One job
-- joins them in two ways, which must agree: weather is observed once an hour.
SET 'pipeline.name' = 'weather';

CREATE TABLE weather_delays (
    window_start TIMESTAMP(3),
    visibility STRING,
    departed BIGINT,
    mean_delay DOUBLE,  -- minutes
    max_wind DOUBLE     -- miles per hour
);

CREATE TABLE weather_as_of (
    window_start TIMESTAMP(3),
    visibility STRING,
    departed BIGINT,
    mean_delay DOUBLE,
    max_wind DOUBLE
);

-- An interval join: a flight waits for weather that may still come, and weather for flights. Both are forgotten by the
-- watermark. The join keeps event time, so a window can stand above it.
CREATE TEMPORARY VIEW observed AS
SELECT flights.event_time, flights.dep_delay, weather.visib, weather.wind_speed
FROM flights LEFT JOIN weather
    ON weather.origin = flights.origin
    AND weather.time_hour > flights.event_time - INTERVAL '1' HOUR
    AND weather.time_hour <= flights.event_time
WHERE flights.departed_at IS NOT NULL;

-- The newest observation of each airport, read as its versions: one is valid from its time to that of the next.
CREATE TEMPORARY VIEW weather_now AS
SELECT origin, time_hour, visib, wind_speed
FROM weather
QUALIFY ROW_NUMBER() OVER (PARTITION BY origin ORDER BY time_hour DESC) = 1;

-- A temporal join: a flight waits until the watermark has passed it; versions that no flight can need any more are dropped.
CREATE TEMPORARY VIEW observed_last AS
SELECT flights.event_time, flights.dep_delay, now.visib, now.wind_speed
FROM flights LEFT JOIN weather_now FOR SYSTEM_TIME AS OF flights.event_time AS now
    ON now.origin = flights.origin AND now.time_hour > flights.event_time - INTERVAL '1' HOUR
WHERE flights.departed_at IS NOT NULL;

EXECUTE STATEMENT SET BEGIN

INSERT INTO weather_delays
SELECT window_start,
    CASE WHEN visib >= 10 THEN 'clear' WHEN visib >= 3 THEN 'hazy' WHEN visib >= 0 THEN 'fog' ELSE 'unknown' END AS visibility,
    COUNT(*) AS departed, ROUND(AVG(dep_delay), 2) AS mean_delay, ROUND(MAX(wind_speed), 1) AS max_wind
FROM TUMBLE(TABLE observed, DESCRIPTOR(event_time), INTERVAL '1' DAY)
GROUP BY window_start, window_end, visibility;

INSERT INTO weather_as_of
SELECT window_start,
    CASE WHEN visib >= 10 THEN 'clear' WHEN visib >= 3 THEN 'hazy' WHEN visib >= 0 THEN 'fog' ELSE 'unknown' END AS visibility,
    COUNT(*) AS departed, ROUND(AVG(dep_delay), 2) AS mean_delay, ROUND(MAX(wind_speed), 1) AS max_wind
FROM TUMBLE(TABLE observed_last, DESCRIPTOR(event_time), INTERVAL '1' DAY)
GROUP BY window_start, window_end, visibility;

END;
