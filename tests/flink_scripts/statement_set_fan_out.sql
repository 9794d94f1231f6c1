-- One read of the topic, three tables.
CREATE TABLE server_logs (
  client_ip STRING, request STRING, status_code STRING, size INT, log_time TIMESTAMP(3),
  WATERMARK FOR log_time AS log_time - INTERVAL '30' SECONDS
) WITH ('connector' = 'kafka', 'topic' = 'logs', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

CREATE TEMPORARY TABLE realtime_aggregations (
  browser STRING, status_code STRING, end_time TIMESTAMP(3), requests BIGINT
) WITH ('connector' = 'kafka', 'topic' = 'agg', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'avro');

CREATE TEMPORARY TABLE archive (client_ip STRING, request STRING, log_day STRING) PARTITIONED BY (log_day) WITH (
  'connector' = 'filesystem', 'path' = '/tmp/archive', 'format' = 'parquet',
  'sink.rolling-policy.rollover-interval' = '15 min');

CREATE TEMPORARY TABLE errors (client_ip STRING, request STRING) WITH ('connector' = 'print', 'standard-error' = 'true');

CREATE TEMPORARY VIEW browsers AS
SELECT
  REGEXP_EXTRACT(request, '^(GET|POST) (\S+)', 1) AS verb,
  status_code,
  log_time
FROM server_logs;

BEGIN STATEMENT SET;
INSERT INTO realtime_aggregations
SELECT verb, status_code, TUMBLE_ROWTIME(log_time, INTERVAL '5' MINUTE), COUNT(*)
FROM browsers
GROUP BY verb, status_code, TUMBLE(log_time, INTERVAL '5' MINUTE);
INSERT INTO archive SELECT client_ip, request, DATE_FORMAT(log_time, 'yyyyMMdd') FROM server_logs;
INSERT INTO errors SELECT client_ip, request FROM server_logs WHERE CAST(status_code AS INT) >= 500;
END;
