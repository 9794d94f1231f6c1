-- Versions of a table that only grows, by a view that keeps the last row of a key.
CREATE TABLE rate_history (
  currency STRING, rate DOUBLE, valid_from TIMESTAMP(3), WATERMARK FOR valid_from AS valid_from
) WITH ('connector' = 'kafka', 'topic' = 'rates', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE VIEW versioned_rates AS
SELECT currency, rate, valid_from FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY currency ORDER BY valid_from DESC) AS rownum FROM rate_history
) WHERE rownum = 1;
CREATE TABLE orders (
  id INT, currency STRING, price DOUBLE, order_time TIMESTAMP(3), WATERMARK FOR order_time AS order_time
) WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE converted (id INT, price DOUBLE) WITH ('connector' = 'print');
INSERT INTO converted
SELECT o.id, o.price * r.rate FROM orders o
LEFT JOIN versioned_rates FOR SYSTEM_TIME AS OF o.order_time AS r ON o.currency = r.currency;
