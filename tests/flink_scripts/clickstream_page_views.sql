-- Page views per minute, for a dashboard that reads a compacted topic.
SET 'execution.checkpointing.interval' = '10 s';
SET 'parallelism.default' = '2';

CREATE TABLE page_views (
  view_id      STRING,
  user_id      BIGINT,
  url          STRING,
  referrer     STRING,
  viewed_at    TIMESTAMP(3),
  WATERMARK FOR viewed_at AS viewed_at - INTERVAL '5' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'page_views',
  'properties.bootstrap.servers' = 'kafka:9092',
  'properties.group.id' = 'dashboard',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json',
  'json.ignore-parse-errors' = 'true'
);

CREATE TABLE views_per_minute (
  url          STRING,
  minute_start TIMESTAMP(3),
  views        BIGINT,
  visitors     BIGINT,
  PRIMARY KEY (url, minute_start) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'views_per_minute',
  'properties.bootstrap.servers' = 'kafka:9092',
  'key.format' = 'json',
  'value.format' = 'json'
);

INSERT INTO views_per_minute
SELECT url, window_start, COUNT(*), COUNT(DISTINCT user_id)
FROM TABLE(TUMBLE(TABLE page_views, DESCRIPTOR(viewed_at), INTERVAL '1' MINUTE))
GROUP BY url, window_start, window_end;
