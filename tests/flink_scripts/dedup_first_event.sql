-- Producers send events more than once: keep the first one.
CREATE TABLE raw_events (
  event_id STRING, payload STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'raw', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE events (event_id STRING, payload STRING, ts TIMESTAMP(3)) WITH ('connector' = 'kafka', 'topic' = 'events',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
SET 'table.exec.state.ttl' = '1 d';
INSERT INTO events
SELECT event_id, payload, ts FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY event_id ORDER BY ts ASC) AS rn FROM raw_events
) WHERE rn = 1;
