-- Event times as seconds since 1970, the older way.
CREATE TABLE behavior (
  user_id BIGINT, item_id BIGINT, behavior STRING, ts BIGINT,
  row_time AS TO_TIMESTAMP(FROM_UNIXTIME(ts, 'yyyy-MM-dd HH:mm:ss')),
  WATERMARK FOR row_time AS row_time - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'user_behavior', 'properties.bootstrap.servers' = 'localhost:9094',
  'properties.zookeeper.connect' = 'localhost:2181', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
CREATE TABLE buys_per_hour (hour_of_day BIGINT, buys BIGINT) WITH (
  'connector' = 'elasticsearch-7', 'hosts' = 'http://localhost:9200', 'index' = 'buy_cnt_per_hour');
INSERT INTO buys_per_hour
SELECT HOUR(TUMBLE_START(row_time, INTERVAL '1' HOUR)), COUNT(*)
FROM behavior WHERE behavior = 'buy' GROUP BY TUMBLE(row_time, INTERVAL '1' HOUR);
