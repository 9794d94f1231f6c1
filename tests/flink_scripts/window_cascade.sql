-- Minutes are summed to hours, by window_time.
CREATE TABLE clicks (
  url STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'clicks', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE VIEW per_minute AS
SELECT window_start, window_end, window_time AS rowtime, url, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, window_time, url;
CREATE TABLE busiest (hour_start TIMESTAMP(3), url STRING, most BIGINT, total BIGINT) WITH ('connector' = 'print');
INSERT INTO busiest
SELECT TUMBLE_START(rowtime, INTERVAL '1' HOUR), url, MAX(n), SUM(n)
FROM per_minute
GROUP BY url, TUMBLE(rowtime, INTERVAL '1' HOUR);
