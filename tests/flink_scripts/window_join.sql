CREATE TABLE left_table (
  row_time TIMESTAMP(3), num INT, id STRING, WATERMARK FOR row_time AS row_time - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'l', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE right_table (
  row_time TIMESTAMP(3), num INT, id STRING, WATERMARK FOR row_time AS row_time - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'r', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE matched (l_id STRING, r_id STRING, s TIMESTAMP(3)) WITH ('connector' = 'print');
INSERT INTO matched
SELECT L.id, R.id, COALESCE(L.window_start, R.window_start)
FROM (SELECT * FROM TABLE(TUMBLE(TABLE left_table, DESCRIPTOR(row_time), INTERVAL '5' MINUTES))) L
FULL JOIN (SELECT * FROM TABLE(TUMBLE(TABLE right_table, DESCRIPTOR(row_time), INTERVAL '5' MINUTES))) R
ON L.num = R.num AND L.window_start = R.window_start AND L.window_end = R.window_end;
