-- Orders hold their items as an array of rows.
CREATE TABLE orders (
  order_id BIGINT,
  customer ROW<name STRING, address ROW<city STRING, zip STRING>>,
  items ARRAY<ROW<sku STRING, quantity INT, price DOUBLE>>,
  attributes MAP<STRING, STRING>
) WITH ('connector' = 'kafka', 'topic' = 'orders', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE order_lines (order_id BIGINT, city STRING, channel STRING, sku STRING, line_total DOUBLE) WITH ('connector' = 'print');
INSERT INTO order_lines
SELECT o.order_id, o.customer.address.city, o.attributes['channel'], i.sku, i.quantity * i.price
FROM orders AS o
CROSS JOIN UNNEST(o.items) AS i (sku, quantity, price);
