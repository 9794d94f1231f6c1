-- A row of each user and day, with a column per kind of event.
CREATE TABLE events (user_id INT, kind STRING, day_ DATE) WITH ('connector' = 'kafka', 'topic' = 'e',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE per_day (user_id INT, day_ DATE, views BIGINT, buys BIGINT, PRIMARY KEY (user_id, day_) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = 'd', 'properties.bootstrap.servers' = 'kafka:9092', 'key.format' = 'json', 'value.format' = 'json');
INSERT INTO per_day
SELECT user_id, day_, COUNT(*) FILTER (WHERE kind = 'view'), COUNT(*) FILTER (WHERE kind = 'buy')
FROM events GROUP BY user_id, day_;
