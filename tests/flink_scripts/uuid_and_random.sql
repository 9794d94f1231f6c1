CREATE TABLE src (id INT, req STRING, token AS UUID()) WITH ('connector' = 'kafka', 'topic' = 's', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE copy (id INT, has_token BOOLEAN) WITH ('connector' = 'print');
INSERT INTO copy SELECT id, CHAR_LENGTH(token) = 36 FROM src;
