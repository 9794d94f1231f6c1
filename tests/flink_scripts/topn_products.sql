-- The two best products of each category, as they change.
CREATE TABLE sales (
  category STRING, product STRING, units INT
) WITH ('connector' = 'kafka', 'topic' = 'sales', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE best (
  category STRING, product STRING, units BIGINT, place BIGINT, PRIMARY KEY (category, place) NOT ENFORCED
) WITH ('connector' = 'upsert-kafka', 'topic' = 'best', 'properties.bootstrap.servers' = 'kafka:9092',
  'key.format' = 'json', 'value.format' = 'json');

INSERT INTO best
SELECT category, product, units, place
FROM (
  SELECT category, product, units,
    ROW_NUMBER() OVER (PARTITION BY category ORDER BY units DESC) AS place
  FROM (SELECT category, product, SUM(units) AS units FROM sales GROUP BY category, product)
)
WHERE place <= 2;
