-- The job that every archive in this folder has: state of several kinds. Older versions of sqlstream must run it, too.
CREATE TABLE orders (customer BIGINT, amount BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'filesystem', 'path' = 'in/orders', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
CREATE TABLE customers (customer BIGINT, name STRING)
WITH ('connector' = 'filesystem', 'path' = 'in/customers', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');

CREATE TABLE windows (customer BIGINT, n BIGINT, mean DOUBLE);
CREATE TABLE totals (customer BIGINT, total BIGINT, PRIMARY KEY (customer) NOT ENFORCED);
CREATE TABLE largest (customer BIGINT, amount BIGINT);
CREATE TABLE named (name STRING, amount BIGINT);

SET 'pipeline.name' = 'kept';
EXECUTE STATEMENT SET BEGIN
INSERT INTO windows WITH by_window AS (
    SELECT customer, count(*) AS n, avg(amount) AS mean
    FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY customer, window_start, window_end
) SELECT customer, n, mean FROM by_window;
INSERT INTO totals WITH by_customer AS (
    SELECT customer, CAST(sum(amount) AS BIGINT) AS total FROM orders GROUP BY customer
) SELECT * FROM by_customer;
INSERT INTO largest WITH top AS (
    SELECT customer, amount FROM (
        SELECT customer, amount, row_number() OVER (PARTITION BY customer ORDER BY amount DESC) AS place FROM orders
    ) WHERE place <= 2
) SELECT customer, amount FROM top;
INSERT INTO named WITH joined AS (
    SELECT c.name, o.amount FROM orders AS o JOIN customers AS c ON o.customer = c.customer
) SELECT name, amount FROM joined;
END;
