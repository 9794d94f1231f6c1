CREATE TABLE meter (
  id INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'm', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE sums (s TIMESTAMP(3), total INT) WITH ('connector' = 'print');
INSERT INTO sums SELECT window_start, SUM(v) FROM TABLE(TUMBLE(TABLE meter, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;
