-- What make_data.py writes: rows in the order of their times, a file for each hour.
CREATE TABLE readings (sensor STRING, temperature DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = '.demo/readings', 'format' = 'parquet');

CREATE TABLE bounds (name STRING, temperature DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = '.demo/bounds', 'format' = 'parquet');

CREATE TABLE rides (ride_id BIGINT, taxi STRING, event STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = '.demo/rides', 'format' = 'parquet');

CREATE TABLE fares (ride_id BIGINT, amount DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = '.demo/fares', 'format' = 'parquet');

CREATE TABLE clicks (user_id BIGINT, page STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = '.demo/clicks', 'format' = 'parquet');
