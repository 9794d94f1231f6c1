-- Options of Flink 1.10.
CREATE TABLE user_log (
  user_id VARCHAR, item_id VARCHAR, behavior VARCHAR, ts TIMESTAMP(3)
) WITH (
  'connector.type' = 'kafka', 'connector.version' = 'universal', 'connector.topic' = 'user_behavior',
  'connector.startup-mode' = 'earliest-offset',
  'connector.properties.zookeeper.connect' = 'localhost:2181',
  'connector.properties.bootstrap.servers' = 'localhost:9092',
  'update-mode' = 'append', 'format.type' = 'json', 'format.derive-schema' = 'true'
);
CREATE TABLE pvuv_sink (dt VARCHAR, pv BIGINT, uv BIGINT, PRIMARY KEY (dt) NOT ENFORCED) WITH (
  'connector.type' = 'jdbc', 'connector.url' = 'jdbc:mysql://localhost:3306/flink-test', 'connector.table' = 'pvuv_sink',
  'connector.username' = 'root', 'connector.password' = '123456', 'connector.write.flush.max-rows' = '1');
INSERT INTO pvuv_sink
SELECT DATE_FORMAT(ts, 'yyyy-MM-dd HH:00') dt, COUNT(*) AS pv, COUNT(DISTINCT user_id) AS uv
FROM user_log GROUP BY DATE_FORMAT(ts, 'yyyy-MM-dd HH:00');
