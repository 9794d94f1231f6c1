-- The newest reading of each device: a deduplication that keeps the last row.
CREATE TABLE telemetry (
  device_id STRING,
  battery INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts
) WITH (
  'connector' = 'kafka', 'topic' = 'telemetry', 'properties.bootstrap.servers' = 'kafka:9092',
  'value.format' = 'json', 'key.format' = 'raw', 'key.fields' = 'device_id', 'value.fields-include' = 'ALL'
);
CREATE TABLE latest (
  device_id STRING,
  battery INT,
  ts TIMESTAMP(3),
  PRIMARY KEY (device_id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'latest', 'properties.bootstrap.servers' = 'kafka:9092',
  'key.format' = 'raw', 'value.format' = 'json'
);
INSERT INTO latest
SELECT device_id, battery, ts
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY device_id ORDER BY ts DESC) AS row_num
  FROM telemetry)
WHERE row_num = 1;
