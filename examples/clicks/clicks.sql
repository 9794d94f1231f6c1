-- Clicks per page and minute, from one topic of Kafka to another. KAFKA is an environment variable.
CREATE TABLE clicks (
    page STRING,
    visitor INT,
    ts TIMESTAMP(3),
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
    'connector' = 'kafka',
    'topic' = 'clicks',
    'properties.bootstrap.servers' = '${KAFKA}',
    'scan.startup.mode' = 'earliest-offset',
    'format' = 'json'
);

-- Each batch is a transaction: who reads committed messages sees each result once, whatever happens to the job.
CREATE TABLE clicks_per_page (page STRING, window_start TIMESTAMP(3), clicks BIGINT, visitors BIGINT)
WITH (
    'connector' = 'kafka',
    'topic' = 'clicks_per_page',
    'properties.bootstrap.servers' = '${KAFKA}',
    'format' = 'json',
    'sink.delivery-guarantee' = 'exactly-once',
    'sink.transactional-id-prefix' = 'clicks'
);

-- While the job runs, the minutes that are open are the table state.clicks_per_page.by_page.
INSERT INTO clicks_per_page
WITH by_page AS (
    SELECT page, window_start, window_end, COUNT(*) AS clicks, COUNT(DISTINCT visitor) AS visitors
    FROM TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
    GROUP BY page, window_start, window_end
)
SELECT page, window_start, clicks, visitors FROM by_page;
