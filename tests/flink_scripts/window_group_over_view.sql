-- A group window over a view that has the columns of a window already.
CREATE TABLE prices (
  symbol STRING, price DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'prices', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE VIEW minutes AS
SELECT symbol, window_start, window_end, window_time AS wt, MAX(price) AS high
FROM TABLE(TUMBLE(TABLE prices, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY symbol, window_start, window_end, window_time;
CREATE TABLE hours (symbol STRING, started TIMESTAMP(3), first_minute TIMESTAMP(3), high DOUBLE) WITH ('connector' = 'print');
INSERT INTO hours
SELECT symbol, TUMBLE_START(wt, INTERVAL '1' HOUR), MIN(window_start), MAX(high)
FROM minutes
GROUP BY symbol, TUMBLE(wt, INTERVAL '1' HOUR);
