CREATE TABLE users (id BIGINT, name STRING, age INT) WITH ('connector' = 'kafka', 'topic' = 'users',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE adults WITH ('connector' = 'kafka', 'topic' = 'adults', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json')
AS SELECT id, name FROM users WHERE age >= 18;
