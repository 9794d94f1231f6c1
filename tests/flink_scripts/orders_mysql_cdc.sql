-- The quickstart of many change data capture tutorials.
SET execution.checkpointing.interval = 3s;

CREATE TABLE products (
  id INT, name STRING, description STRING, PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'mysql-cdc', 'hostname' = 'localhost', 'port' = '3306', 'username' = 'root',
  'password' = '123456', 'database-name' = 'mydb', 'table-name' = 'products'
);
CREATE TABLE orders (
  order_id INT, order_date TIMESTAMP(0), customer_name STRING, price DECIMAL(10, 5), product_id INT, order_status BOOLEAN,
  PRIMARY KEY (order_id) NOT ENFORCED
) WITH (
  'connector' = 'mysql-cdc', 'hostname' = 'localhost', 'port' = '3306', 'username' = 'root',
  'password' = '123456', 'database-name' = 'mydb', 'table-name' = 'orders'
);
CREATE TABLE shipments (
  shipment_id INT, order_id INT, origin STRING, destination STRING, is_arrived BOOLEAN, PRIMARY KEY (shipment_id) NOT ENFORCED
) WITH (
  'connector' = 'postgres-cdc', 'hostname' = 'localhost', 'port' = '5432', 'username' = 'postgres',
  'password' = 'postgres', 'database-name' = 'postgres', 'schema-name' = 'public', 'table-name' = 'shipments',
  'slot.name' = 'flink'
);
CREATE TABLE enriched (
  order_id INT, customer_name STRING, price DECIMAL(10, 5), product_name STRING, destination STRING,
  PRIMARY KEY (order_id) NOT ENFORCED
) WITH ('connector' = 'elasticsearch-7', 'hosts' = 'http://localhost:9200', 'index' = 'enriched_orders');

INSERT INTO enriched
SELECT o.order_id, o.customer_name, o.price, p.name, s.destination
FROM orders AS o
LEFT JOIN products AS p ON o.product_id = p.id
LEFT JOIN shipments AS s ON o.order_id = s.order_id;
