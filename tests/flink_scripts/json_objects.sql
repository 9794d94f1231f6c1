-- Make documents for a sink that takes text.
CREATE TABLE users (id INT, name STRING, email STRING) WITH ('connector' = 'kafka', 'topic' = 'users',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE documents (doc STRING) WITH ('connector' = 'kafka', 'topic' = 'documents',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'raw');
INSERT INTO documents
SELECT JSON_OBJECT('id' VALUE id, 'name' VALUE UPPER(name), KEY 'tags' VALUE JSON_ARRAY('a', 1), 'email' VALUE email ABSENT ON NULL)
FROM users;
