CREATE TABLE articles (id INT, tags ARRAY<STRING>) WITH ('connector' = 'kafka', 'topic' = 'articles',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE tag_counts (tag STRING, n BIGINT, PRIMARY KEY (tag) NOT ENFORCED) WITH ('connector' = 'upsert-kafka',
  'topic' = 'tags', 'properties.bootstrap.servers' = 'kafka:9092', 'key.format' = 'csv', 'value.format' = 'csv');
INSERT INTO tag_counts
SELECT tag, COUNT(*) FROM articles CROSS JOIN UNNEST(tags) AS t (tag) GROUP BY tag;
