CREATE TABLE latencies (
  service STRING, ms INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'l', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE slow (service STRING, p50 DOUBLE) WITH ('connector' = 'print');
INSERT INTO slow
SELECT service, PERCENTILE(ms, 0.5)
FROM TABLE(TUMBLE(TABLE latencies, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY service, window_start, window_end;
