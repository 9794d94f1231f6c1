-- The hours in which flights were cancelled, or one could not see far: which flights, and what was observed. Two streams are collected by
-- airport and hour and meet there, also where the other has nothing: a co-group.
SET 'pipeline.name' = 'bad_hours';

CREATE TABLE bad_hours (
    origin STRING,
    window_start TIMESTAMP(3),
    cancelled ARRAY<STRING>,  -- carrier and number
    visibility ARRAY<DOUBLE>  -- miles
);

INSERT INTO bad_hours
WITH cancelled AS (
    SELECT origin, window_start, window_end, ARRAY_AGG(carrier || flight ORDER BY carrier, flight) AS flights
    FROM TUMBLE(TABLE flights, DESCRIPTOR(event_time), INTERVAL '1' HOUR)
    WHERE departed_at IS NULL
    GROUP BY origin, window_start, window_end
), foggy AS (
    SELECT origin, window_start, window_end, ARRAY_AGG(visib ORDER BY time_hour) AS visibility
    FROM TUMBLE(TABLE weather, DESCRIPTOR(time_hour), INTERVAL '1' HOUR)
    WHERE visib < 3
    GROUP BY origin, window_start, window_end
)
SELECT
    COALESCE(cancelled.origin, foggy.origin) AS origin,
    COALESCE(cancelled.window_start, foggy.window_start) AS window_start,
    cancelled.flights AS cancelled, foggy.visibility
FROM cancelled FULL JOIN foggy
    ON cancelled.origin = foggy.origin AND cancelled.window_start = foggy.window_start AND cancelled.window_end = foggy.window_end;
