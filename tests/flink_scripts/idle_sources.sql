SET 'table.exec.source.idle-timeout' = '10 s';
CREATE TABLE clicks (
  id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'c', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json',
  'scan.watermark.idle-timeout' = '30 s', 'scan.parallelism' = '2');
CREATE TABLE per_minute (s TIMESTAMP(3), n BIGINT) WITH ('connector' = 'print');
INSERT INTO per_minute SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE), COUNT(*) FROM clicks GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE);
