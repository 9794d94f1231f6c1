CREATE TABLE users (id INT, name STRING) WITH ('connector' = 'kafka', 'topic' = 'u', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE mongo_users (_id STRING, name STRING, PRIMARY KEY (_id) NOT ENFORCED) WITH (
  'connector' = 'mongodb', 'uri' = 'mongodb://root:root@mongo:27017', 'database' = 'app', 'collection' = 'users');
INSERT INTO mongo_users SELECT CAST(id AS STRING), name FROM users;
