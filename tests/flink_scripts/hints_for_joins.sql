CREATE TABLE orders (id INT, customer_id INT) WITH ('connector' = 'datagen');
CREATE TABLE customers (id INT, name STRING) WITH ('connector' = 'datagen');
CREATE TABLE named (id INT, name STRING) WITH ('connector' = 'print');
INSERT INTO named
SELECT /*+ BROADCAST(c), STATE_TTL('o' = '1d', 'c' = '20d') */ o.id, c.name
FROM orders o JOIN customers c ON o.customer_id = c.id;
