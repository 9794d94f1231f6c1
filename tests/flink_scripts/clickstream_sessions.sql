-- Sessions of a visitor end after half an hour without a click.
CREATE TABLE clicks (
  user_id STRING,
  page STRING,
  ts TIMESTAMP_LTZ(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE
) WITH (
  'connector' = 'kafka',
  'topic' = 'clicks',
  'properties.bootstrap.servers' = 'localhost:9092',
  'scan.startup.mode' = 'latest-offset',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TABLE sessions (
  user_id STRING,
  started TIMESTAMP(3),
  ended TIMESTAMP(3),
  clicks BIGINT
) WITH ('connector' = 'print');

INSERT INTO sessions
SELECT user_id, window_start, window_end, COUNT(*) AS clicks
FROM TABLE(
  SESSION(TABLE clicks PARTITION BY user_id, DESCRIPTOR(ts), INTERVAL '30' MINUTES))
GROUP BY user_id, window_start, window_end;
