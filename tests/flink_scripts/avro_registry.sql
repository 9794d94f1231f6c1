CREATE TABLE ratings (
  kafka_key_id STRING,
  rating INT, movie STRING, event_time TIMESTAMP(3) METADATA FROM 'timestamp', headers MAP<STRING, BYTES> METADATA, `partition` INT METADATA VIRTUAL, `offset` BIGINT METADATA VIRTUAL
) WITH (
  'connector' = 'kafka', 'topic' = 'ratings', 'properties.bootstrap.servers' = 'broker:9092', 'properties.group.id' = 'ratings',
  'scan.startup.mode' = 'earliest-offset',
  'key.format' = 'raw', 'key.fields' = 'kafka_key_id',
  'value.format' = 'avro-confluent', 'value.avro-confluent.url' = 'http://schema-registry:8081', 'value.fields-include' = 'EXCEPT_KEY'
);
CREATE TABLE movie_ratings (movie STRING, average DOUBLE, PRIMARY KEY (movie) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'movie_ratings', 'properties.bootstrap.servers' = 'broker:9092',
  'key.format' = 'raw', 'value.format' = 'avro-confluent', 'value.avro-confluent.url' = 'http://schema-registry:8081',
  'value.fields-include' = 'EXCEPT_KEY'
);
INSERT INTO movie_ratings SELECT movie, AVG(CAST(rating AS DOUBLE)) FROM ratings GROUP BY movie;
