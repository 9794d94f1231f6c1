-- Flights of 2013 from New York's airports and their weather, as examples/flights/replay.py drops them, a day at a time.

-- One row per flight: event_time is when it departed or, if it was cancelled, when it should have. A day's file holds the
-- flights that were scheduled for that day, so flights that left long after midnight come before early ones of the
-- next day: by at most 9 h 38 min in the whole year, hence the watermark, which makes no row late.
CREATE TABLE flights (
    event_time TIMESTAMP(3),
    scheduled_at TIMESTAMP(3),
    departed_at TIMESTAMP(3),  -- NULL: cancelled
    origin STRING,
    dest STRING,
    carrier STRING,
    flight INT,
    tailnum STRING,
    dep_delay INT,             -- minutes; negative: early
    arr_delay INT,
    sched_arr_time INT,        -- local time of the destination: 1730 is 17:30
    arr_time INT,
    air_time INT,              -- minutes
    distance INT,              -- miles
    WATERMARK FOR event_time AS event_time - INTERVAL '10' HOUR
) WITH (
    'connector' = 'filesystem',
    'path' = '.demo/stream/flights',
    'format' = 'parquet',
    'source.monitor-interval' = '1 s'
);

-- One row per airport and hour, in order.
CREATE TABLE weather (
    time_hour TIMESTAMP(3),
    origin STRING,
    temp DOUBLE,               -- Fahrenheit
    dewp DOUBLE,
    humid DOUBLE,
    wind_dir INT,              -- degrees
    wind_speed DOUBLE,         -- miles per hour
    wind_gust DOUBLE,
    precip DOUBLE,             -- inches
    pressure DOUBLE,           -- millibars
    visib DOUBLE,              -- miles
    WATERMARK FOR time_hour AS time_hour
) WITH (
    'connector' = 'filesystem',
    'path' = '.demo/stream/weather',
    'format' = 'parquet',
    'source.monitor-interval' = '1 s'
);
