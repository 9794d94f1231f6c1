-- What `make demo` prints while the job of departures.sql fills its table: the hours in which little went as planned.
SET 'pipeline.name' = 'board';

CREATE TABLE board (
    origin STRING,
    window_start TIMESTAMP(3),
    departed BIGINT,
    mean_delay DOUBLE,
    max_delay INT
) WITH ('connector' = 'print');

INSERT INTO board
SELECT
    origin, window_start,
    COUNT(departed_at) AS departed,
    ROUND(AVG(dep_delay), 1) AS mean_delay,
    MAX(dep_delay) AS max_delay
FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(event_time), INTERVAL '1' HOUR))
GROUP BY origin, window_start, window_end
HAVING COUNT(departed_at) >= 10 AND AVG(dep_delay) > 45;
