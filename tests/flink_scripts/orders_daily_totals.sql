CREATE TABLE orders (
  order_id BIGINT,
  customer STRING,
  price DECIMAL(10, 2),
  quantity INT,
  order_time TIMESTAMP(3),
  cost AS price * quantity
) WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

CREATE TABLE daily_totals (
  order_day STRING,
  customer STRING,
  orders BIGINT,
  total DECIMAL(38, 2),
  dearest DECIMAL(20, 2),
  PRIMARY KEY (order_day, customer) NOT ENFORCED
) WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:mysql://mysql:3306/shop', 'table-name' = 'daily_totals',
  'username' = 'root', 'password' = 'root', 'sink.buffer-flush.max-rows' = '100', 'sink.buffer-flush.interval' = '1s'
);

INSERT INTO daily_totals
SELECT DATE_FORMAT(order_time, 'yyyy-MM-dd'), customer, COUNT(order_id), SUM(cost), MAX(cost)
FROM orders
GROUP BY DATE_FORMAT(order_time, 'yyyy-MM-dd'), customer
HAVING COUNT(order_id) > 1;
