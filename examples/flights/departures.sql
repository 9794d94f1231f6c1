-- Departures and delays per airport and hour, kept in a table of the warehouse.
SET 'pipeline.name' = 'departures';

CREATE TABLE departures (
    origin STRING,
    window_start TIMESTAMP(3),
    departed BIGINT,
    cancelled BIGINT,
    mean_delay DOUBLE,  -- minutes, of the flights that departed
    max_delay INT,
    late_share DOUBLE   -- departed more than 15 minutes late
);

-- The CTE names the operator: while the job runs, its open hours are the table state.departures.by_hour.
INSERT INTO departures
WITH by_hour AS (
    SELECT
        origin, window_start, window_end,
        COUNT(departed_at) AS departed,
        COUNT(*) FILTER (WHERE departed_at IS NULL) AS cancelled,
        COUNT(*) FILTER (WHERE dep_delay > 15) AS late,
        AVG(dep_delay) AS mean_delay,
        MAX(dep_delay) AS max_delay
    FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(event_time), INTERVAL '1' HOUR))
    GROUP BY origin, window_start, window_end
)
SELECT
    origin, window_start, departed, cancelled,
    ROUND(mean_delay, 2) AS mean_delay,
    max_delay,
    ROUND(CAST(late AS DOUBLE) / NULLIF(departed, 0), 3) AS late_share
FROM by_hour;
