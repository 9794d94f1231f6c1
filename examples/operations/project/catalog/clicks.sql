CREATE TABLE clicks (
    page STRING,
    visitor INT,
    ts TIMESTAMP(3),
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (
    'connector' = 'kafka',
    'topic' = 'clicks',
    'properties.bootstrap.servers' = '${KAFKA:-kafka:9092}',
    'scan.startup.mode' = 'earliest-offset',
    'format' = 'json'
);

CREATE TABLE clicks_per_page (page STRING, window_start TIMESTAMP(3), clicks BIGINT, visitors BIGINT);
