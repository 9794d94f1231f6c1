CREATE TABLE hits (page STRING, ts AS PROCTIME()) WITH ('connector' = 'kafka', 'topic' = 'hits',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE hits_per_10s (page STRING, n BIGINT) WITH ('connector' = 'print');
INSERT INTO hits_per_10s
SELECT page, COUNT(*) FROM hits GROUP BY page, TUMBLE(ts, INTERVAL '10' SECOND);
