-- The jobs of the archives of ties: rows that nothing in a query tells apart, in every place where one of them comes first. One job has
-- event time, one processing time, and one writes rows of its input into a table with a key.
CREATE TABLE orders (
    customer BIGINT, amount BIGINT, number BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'in/orders', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
CREATE TABLE received (customer BIGINT, amount BIGINT, number BIGINT, p AS PROCTIME())
WITH ('connector' = 'filesystem', 'path' = 'in/orders', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');
CREATE TABLE rates (
    customer BIGINT, rate BIGINT, number BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND,
    PRIMARY KEY (customer) NOT ENFORCED
) WITH ('connector' = 'filesystem', 'path' = 'in/rates', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');

CREATE TABLE first_by_p (customer BIGINT, amount BIGINT, number BIGINT);
CREATE TABLE last_by_p (customer BIGINT, amount BIGINT, number BIGINT);
CREATE TABLE first_by_ts (customer BIGINT, amount BIGINT, number BIGINT);
CREATE TABLE last_by_ts (customer BIGINT, amount BIGINT, number BIGINT);
CREATE TABLE top (customer BIGINT, amount BIGINT, number BIGINT, place BIGINT);
CREATE TABLE first_in_window (ends TIMESTAMP(3), customer BIGINT, amount BIGINT, number BIGINT);
CREATE TABLE last_in_window (ends TIMESTAMP(3), customer BIGINT, amount BIGINT, number BIGINT);
CREATE TABLE over_ts (customer BIGINT, number BIGINT, before BIGINT, total BIGINT, so_far BIGINT);
CREATE TABLE over_p (customer BIGINT, number BIGINT, before BIGINT, total BIGINT);
CREATE TABLE grouped (
    customer BIGINT, f BIGINT, l BIGINT, least BIGINT, most BIGINT, numbers BIGINT[], words STRING, PRIMARY KEY (customer) NOT ENFORCED
);
CREATE TABLE windowed (ends TIMESTAMP(3), customer BIGINT, f BIGINT, l BIGINT, numbers BIGINT[], words STRING);
CREATE TABLE of_changes (parity BIGINT, f BIGINT, totals BIGINT[], PRIMARY KEY (parity) NOT ENFORCED);
CREATE TABLE by_count (customer BIGINT, window_id BIGINT, numbers BIGINT[]);
CREATE TABLE priced (customer BIGINT, number BIGINT, rate BIGINT);
CREATE TABLE sorted (customer BIGINT, amount BIGINT, number BIGINT, ts TIMESTAMP(3));

SET 'sqlstream.unbounded-state' = 'allow';
CREATE TABLE latest (customer BIGINT, amount BIGINT, number BIGINT, PRIMARY KEY (customer) NOT ENFORCED);

SET 'pipeline.name' = 'ties';
EXECUTE STATEMENT SET BEGIN
INSERT INTO first_by_ts WITH first_ts AS (
    SELECT customer, amount, number FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY ts) AS place FROM orders
    ) WHERE place = 1
) SELECT customer, amount, number FROM first_ts;
INSERT INTO last_by_ts WITH last_ts AS (
    SELECT customer, amount, number FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY ts DESC) AS place FROM orders
    ) WHERE place = 1
) SELECT customer, amount, number FROM last_ts;
INSERT INTO first_in_window WITH window_first AS (
    SELECT window_end, customer, amount, number FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, customer ORDER BY ts) AS place
        FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND)
    ) WHERE place = 1
) SELECT window_end, customer, amount, number FROM window_first;
INSERT INTO last_in_window WITH window_last AS (
    SELECT window_end, customer, amount, number FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, customer ORDER BY ts DESC) AS place
        FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND)
    ) WHERE place = 1
) SELECT window_end, customer, amount, number FROM window_last;
INSERT INTO over_ts WITH by_time AS (
    SELECT customer, number, LAG(number) OVER w AS before,
        SUM(amount) OVER (PARTITION BY customer ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS total,
        LAST_VALUE(number) OVER (PARTITION BY customer ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS so_far
    FROM orders WINDOW w AS (PARTITION BY customer ORDER BY ts)
) SELECT customer, number, before, CAST(total AS BIGINT), so_far FROM by_time;
INSERT INTO windowed WITH by_window AS (
    SELECT customer, window_end, FIRST(amount) AS f, LAST(amount) AS l, ARRAY_AGG(amount ORDER BY amount % 2) AS numbers,
        LISTAGG(CAST(amount AS STRING), ',') AS words
    FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY customer, window_start, window_end
) SELECT window_end, customer, f, l, numbers, words FROM by_window;
INSERT INTO by_count WITH counted AS (
    SELECT customer, window_id, ARRAY_AGG(number ORDER BY number) AS numbers
    FROM TUMBLE_ROWS(TABLE orders PARTITION BY customer, DESCRIPTOR(ts), 2) GROUP BY customer, window_id, window_start, window_end
) SELECT customer, window_id, numbers FROM counted;
INSERT INTO priced WITH at_rate AS (
    SELECT o.customer, o.number, r.rate FROM orders AS o
    LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.customer = r.customer
) SELECT customer, number, rate FROM at_rate;
INSERT INTO sorted SELECT customer, amount, number, ts FROM orders ORDER BY ts;
END;

SET 'pipeline.name' = 'ties_by_clock';
EXECUTE STATEMENT SET BEGIN
INSERT INTO first_by_p WITH first_p AS (
    SELECT customer, amount, number FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY p) AS place FROM received
    ) WHERE place = 1
) SELECT customer, amount, number FROM first_p;
INSERT INTO last_by_p WITH last_p AS (
    SELECT customer, amount, number FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY p DESC) AS place FROM received
    ) WHERE place = 1
) SELECT customer, amount, number FROM last_p;
INSERT INTO top WITH top_rows AS (
    SELECT customer, amount, number, place FROM (
        SELECT customer, amount, number, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY amount % 3 DESC) AS place FROM received
    ) WHERE place <= 2
) SELECT customer, amount, number, place FROM top_rows;
INSERT INTO over_p WITH by_clock AS (
    SELECT customer, number, LAG(number) OVER w AS before,
        SUM(amount) OVER (PARTITION BY customer ORDER BY p ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS total
    FROM received WINDOW w AS (PARTITION BY customer ORDER BY p)
) SELECT customer, number, before, CAST(total AS BIGINT) FROM by_clock;
INSERT INTO grouped WITH by_customer AS (
    SELECT customer, FIRST(amount) AS f, LAST(amount) AS l, ARG_MIN(number, amount % 2) AS least, ARG_MAX(number, amount % 2) AS most,
        ARRAY_AGG(amount) AS numbers, LISTAGG(CAST(amount AS STRING), ',') AS words
    FROM received GROUP BY customer
) SELECT customer, f, l, least, most, numbers, words FROM by_customer;
INSERT INTO of_changes WITH by_parity AS (
    SELECT customer % 2 AS parity, FIRST(total) AS f, ARRAY_AGG(total) AS totals
    FROM (SELECT customer, CAST(SUM(amount) AS BIGINT) AS total FROM received GROUP BY customer) GROUP BY customer % 2
) SELECT parity, f, totals FROM by_parity;
END;

SET 'pipeline.name' = 'ties_keyed';
INSERT INTO latest SELECT customer, amount, number FROM orders;
