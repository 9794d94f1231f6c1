-- Temperatures of the last hour, every reading.
CREATE TABLE sensor_readings (
  sensor_id INT,
  temperature DOUBLE,
  reading_time TIMESTAMP(3),
  WATERMARK FOR reading_time AS reading_time - INTERVAL '30' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'readings',
  'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

CREATE TABLE smoothed (
  sensor_id INT,
  reading_time TIMESTAMP(3),
  temperature DOUBLE,
  hourly_average DOUBLE,
  readings BIGINT
) WITH ('connector' = 'print');

INSERT INTO smoothed
SELECT
  sensor_id, reading_time, temperature,
  AVG(temperature) OVER last_hour,
  COUNT(*) OVER last_hour
FROM sensor_readings
WINDOW last_hour AS (
  PARTITION BY sensor_id ORDER BY reading_time
  RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW);
