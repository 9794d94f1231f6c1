CREATE TABLE visits (
  visitor_id INT,
  country CHAR(2),
  epoch_ms BIGINT,
  event_time AS TO_TIMESTAMP_LTZ(epoch_ms, 3),
  WATERMARK FOR event_time AS event_time - INTERVAL '3' SECONDS
) WITH (
  'connector' = 'kafka',
  'topic' = 'visits',
  'properties.bootstrap.servers' = 'kafka:29092',
  'format' = 'json',
  'json.fail-on-missing-field' = 'false',
  'json.ignore-parse-errors' = 'true'
);

CREATE TABLE unique_visitors (
  window_end TIMESTAMP(3),
  country CHAR(2),
  visitors BIGINT
) WITH ('connector' = 'print', 'print-identifier' = 'uv');

INSERT INTO unique_visitors
SELECT window_end, country, COUNT(DISTINCT visitor_id) AS visitors
FROM TABLE(HOP(TABLE visits, DESCRIPTOR(event_time), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES))
GROUP BY window_start, window_end, country;
