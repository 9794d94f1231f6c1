CREATE TABLE customers (id INT, name STRING) WITH ('connector' = 'datagen');
CREATE TABLE blocked (id INT) WITH ('connector' = 'datagen');
CREATE TABLE orders (customer_id INT) WITH ('connector' = 'datagen');
CREATE TABLE active (name STRING) WITH ('connector' = 'print');
INSERT INTO active
SELECT name FROM customers c
WHERE c.id IN (SELECT customer_id FROM orders)
  AND NOT EXISTS (SELECT 1 FROM blocked b WHERE b.id = c.id);
