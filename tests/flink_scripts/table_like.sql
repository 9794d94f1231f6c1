CREATE TABLE base_orders (
  id BIGINT, amount INT, ts TIMESTAMP(3)
) WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE timed_orders (
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('scan.startup.mode' = 'earliest-offset') LIKE base_orders;
CREATE TABLE results WITH ('connector' = 'print') LIKE base_orders (EXCLUDING ALL);
INSERT INTO results SELECT id, amount, ts FROM timed_orders WHERE amount > 10;
