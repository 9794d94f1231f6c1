-- What delay_bands.sql must have written when January is over; the CASE says what delay_band says in Python.
SELECT
    origin,
    time_bucket(INTERVAL 1 DAY, event_time) AS window_start,
    CASE
        WHEN dep_delay IS NULL THEN 'cancelled'
        WHEN dep_delay < 0 THEN 'early'
        WHEN dep_delay < 15 THEN 'on time'
        WHEN dep_delay < 60 THEN 'late'
        ELSE 'very late'
    END AS band,
    count(*) AS flights
FROM flights
GROUP BY origin, window_start, band
ORDER BY window_start, origin, band
