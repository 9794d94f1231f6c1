CREATE TABLE orders (id INT, product STRING) WITH ('connector' = 'datagen');
CREATE MATERIALIZED TABLE order_counts
FRESHNESS = INTERVAL '30' SECOND
AS SELECT product, COUNT(*) AS n FROM orders GROUP BY product;
