-- Flights per airport, day and band of delay; delay_band is a Python function of udfs/flights.py.
SET 'pipeline.name' = 'delay_bands';

CREATE TABLE delay_bands (
    origin STRING,
    window_start TIMESTAMP(3),
    band STRING,
    flights BIGINT
);

-- NULL in gives NULL out, so a cancelled flight has no band of its own.
INSERT INTO delay_bands
WITH banded AS (
    SELECT origin, window_start, window_end, COALESCE(delay_band(dep_delay), 'cancelled') AS band
    FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(event_time), INTERVAL '1' DAY))
)
SELECT origin, window_start, band, COUNT(*) AS flights
FROM banded
GROUP BY origin, window_start, window_end, band;
