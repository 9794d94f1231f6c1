-- The job of the archives of all kinds of stateful operators: a result of each, named after the operator.
CREATE TABLE orders (customer BIGINT, amount BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in/orders', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
CREATE TABLE payments (customer BIGINT, paid BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'filesystem', 'path' = 'in/payments', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
CREATE TABLE rates (
    customer BIGINT, rate BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND, PRIMARY KEY (customer) NOT ENFORCED
) WITH ('connector' = 'filesystem', 'path' = 'in/rates', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
CREATE TABLE names (op STRING, customer BIGINT, name STRING, PRIMARY KEY (customer) NOT ENFORCED) WITH (
    'connector' = 'filesystem', 'path' = 'in/names', 'format' = 'parquet', 'source.monitor-interval' = '10 ms',
    'changelog.op-column' = 'op'
);

CREATE TABLE window_aggregate (customer BIGINT, ends TIMESTAMP(3), n BIGINT, mean DOUBLE, amounts BIGINT);
CREATE TABLE session_window (customer BIGINT, amount BIGINT, starts TIMESTAMP(3), ends TIMESTAMP(3));
CREATE TABLE count_windows (customer BIGINT, number BIGINT, total BIGINT);
CREATE TABLE aggregate (customer BIGINT, n BIGINT, largest BIGINT, amounts BIGINT, PRIMARY KEY (customer) NOT ENFORCED);
CREATE TABLE window_rank (ends TIMESTAMP(3), customer BIGINT, amount BIGINT);
CREATE TABLE rank (customer BIGINT, amount BIGINT);
CREATE TABLE over_rows (customer BIGINT, amount BIGINT, total BIGINT);
CREATE TABLE set_operation (customer BIGINT);
CREATE TABLE joined (customer BIGINT, amount BIGINT, paid BIGINT);
CREATE TABLE interval_join (customer BIGINT, amount BIGINT, paid BIGINT);
CREATE TABLE temporal_join (customer BIGINT, amount BIGINT, rate BIGINT);
CREATE TABLE normalize (customer BIGINT, name STRING, PRIMARY KEY (customer) NOT ENFORCED);
CREATE TABLE process (customer BIGINT, paid BIGINT, total BIGINT);
CREATE TABLE sort (customer BIGINT, amount BIGINT, ts TIMESTAMP(3));

SET 'pipeline.name' = 'kinds';
SET 'sqlstream.unbounded-state' = 'allow';
EXECUTE STATEMENT SET BEGIN
INSERT INTO window_aggregate WITH by_window AS (
    SELECT customer, window_end, COUNT(*) AS n, AVG(amount) AS mean, COUNT(DISTINCT amount) AS amounts
    FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY customer, window_start, window_end
) SELECT customer, window_end, n, mean, amounts FROM by_window;
INSERT INTO session_window WITH by_session AS (
    SELECT customer, amount, window_start, window_end
    FROM SESSION(TABLE orders PARTITION BY customer, DESCRIPTOR(ts), INTERVAL '3' SECOND)
) SELECT customer, amount, window_start, window_end FROM by_session;
INSERT INTO count_windows WITH by_count AS (
    SELECT customer, window_id, SUM(amount) AS total
    FROM TUMBLE_ROWS(TABLE orders PARTITION BY customer, DESCRIPTOR(ts), 2) GROUP BY customer, window_id, window_start, window_end
) SELECT customer, window_id, CAST(total AS BIGINT) FROM by_count;
INSERT INTO aggregate WITH by_customer AS (
    SELECT customer, COUNT(*) AS n, MAX(amount) AS largest, COUNT(DISTINCT amount) AS amounts FROM orders GROUP BY customer
) SELECT customer, n, largest, amounts FROM by_customer;
INSERT INTO window_rank WITH largest AS (
    SELECT window_end, customer, amount FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY amount DESC) AS place
        FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND)
    ) WHERE place <= 2
) SELECT window_end, customer, amount FROM largest;
INSERT INTO rank WITH top AS (
    SELECT customer, amount FROM (
        SELECT customer, amount, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY amount DESC) AS place FROM orders
    ) WHERE place <= 2
) SELECT customer, amount FROM top;
INSERT INTO over_rows WITH running AS (
    SELECT customer, amount, SUM(amount) OVER (PARTITION BY customer ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS total
    FROM orders
) SELECT customer, amount, CAST(total AS BIGINT) FROM running;
INSERT INTO set_operation WITH unpaid AS (SELECT customer FROM orders EXCEPT SELECT customer FROM payments)
SELECT customer FROM unpaid;
INSERT INTO joined WITH matched AS (
    SELECT o.customer, o.amount, p.paid FROM orders AS o LEFT JOIN payments AS p ON o.customer = p.customer
) SELECT customer, amount, paid FROM matched;
INSERT INTO interval_join WITH soon AS (
    SELECT o.customer, o.amount, p.paid FROM orders AS o JOIN payments AS p
    ON o.customer = p.customer AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '5' SECOND
) SELECT customer, amount, paid FROM soon;
INSERT INTO temporal_join WITH priced AS (
    SELECT o.customer, o.amount, r.rate FROM orders AS o
    LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.customer = r.customer
) SELECT customer, amount, rate FROM priced;
INSERT INTO normalize SELECT customer, name FROM names;
INSERT INTO process WITH totals AS (
    SELECT * FROM running_total(TABLE payments PARTITION BY customer, on_time => DESCRIPTOR(ts))
) SELECT customer, paid, total FROM totals;
INSERT INTO sort SELECT customer, amount, ts FROM orders ORDER BY ts;
END;
