-- The jobs of the archives of values: expressions that had DuckDB's values under Flink's spelling, as keys of state, inside and above
-- aggregates, and without state.
CREATE TABLE orders (
    customer INT, amount DECIMAL(10,2), v INT, tenth AS v / 10, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'in/orders', 'format' = 'parquet', 'source.monitor-interval' = '10 ms');

CREATE TABLE buckets (bucket INT, n BIGINT, PRIMARY KEY (bucket) NOT ENFORCED);
CREATE TABLE averages (customer INT, mean DOUBLE, half DOUBLE, PRIMARY KEY (customer) NOT ENFORCED);
CREATE TABLE texts (v INT, seconds STRING, yes STRING, part STRING, cut INT, tenth DOUBLE);
SET 'sqlstream.unbounded-state' = 'allow';
SET 'pipeline.name' = 'buckets';
INSERT INTO buckets SELECT CAST(v / 10 AS INT) AS bucket, COUNT(*) AS n FROM orders GROUP BY CAST(v / 10 AS INT);
SET 'pipeline.name' = 'averages';
INSERT INTO averages SELECT customer, AVG(amount) AS mean, SUM(v) / 2 AS half FROM orders GROUP BY customer;
SET 'pipeline.name' = 'texts';
INSERT INTO texts SELECT v, CAST(ts AS STRING), CAST(v > 9 AS STRING), SUBSTRING('Hello', 0, 3), amount, tenth FROM orders;
