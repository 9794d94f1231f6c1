-- Orders and customers from Debezium, joined, into a search index.
CREATE TABLE customers (
  id BIGINT, name STRING, city STRING, PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'kafka', 'topic' = 'db.public.customers', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'debezium-json'
);
CREATE TABLE orders (
  order_id BIGINT, customer_id BIGINT, amount DOUBLE, PRIMARY KEY (order_id) NOT ENFORCED
) WITH (
  'connector' = 'kafka', 'topic' = 'db.public.orders', 'properties.bootstrap.servers' = 'kafka:9092',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'debezium-json', 'debezium-json.schema-include' = 'false'
);
CREATE TABLE enriched_orders (
  order_id BIGINT, name STRING, city STRING, amount DOUBLE, PRIMARY KEY (order_id) NOT ENFORCED
) WITH ('connector' = 'elasticsearch-7', 'hosts' = 'http://elasticsearch:9200', 'index' = 'orders');

INSERT INTO enriched_orders
SELECT o.order_id, c.name, c.city, o.amount
FROM orders AS o
LEFT JOIN customers AS c ON o.customer_id = c.id;
