CREATE TABLE events (id INT, at_time TIMESTAMP(9), seen TIMESTAMP_LTZ(9)) WITH ('connector' = 'kafka', 'topic' = 'e',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE copy (id INT, at_time TIMESTAMP(9)) WITH ('connector' = 'print');
INSERT INTO copy SELECT id, at_time FROM events;
