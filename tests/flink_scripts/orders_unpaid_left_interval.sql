-- Orders with their payment of the next hour, if there was one.
CREATE TABLE orders (
  id STRING, placed TIMESTAMP(3), WATERMARK FOR placed AS placed - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE payments (
  order_id STRING, paid TIMESTAMP(3), WATERMARK FOR paid AS paid - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'payments', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE order_payments (id STRING, status STRING) WITH ('connector' = 'print');
INSERT INTO order_payments
SELECT o.id, IF(p.order_id IS NULL, 'unpaid', 'paid')
FROM orders o
LEFT JOIN payments p ON o.id = p.order_id AND p.paid >= o.placed AND p.paid < o.placed + INTERVAL '1' HOUR;
