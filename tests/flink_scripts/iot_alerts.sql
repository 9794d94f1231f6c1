-- Readings above a limit, as text for a messaging system.
CREATE TABLE measurements (
  device STRING,
  `value` DOUBLE,
  unit STRING,
  measured TIMESTAMP(3) METADATA FROM 'timestamp'
) WITH (
  'connector' = 'kafka', 'topic' = 'measurements', 'properties.bootstrap.servers' = 'kafka:9092',
  'format' = 'json'
);
CREATE TABLE alerts (
  device STRING,
  severity STRING,
  message STRING
) WITH ('connector' = 'kafka', 'topic' = 'alerts', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

INSERT INTO alerts
SELECT
  UPPER(device),
  CASE WHEN `value` >= 100 THEN 'CRITICAL' WHEN `value` >= 80 THEN 'WARN' ELSE 'INFO' END,
  CONCAT_WS(' ', DATE_FORMAT(measured, 'yyyy-MM-dd HH:mm'), device, 'at', CAST(`value` AS STRING), unit)
FROM measurements
WHERE `value` > 50 AND unit IN ('C', 'F') AND device NOT LIKE 'test%';
