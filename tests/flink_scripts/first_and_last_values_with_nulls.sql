CREATE TABLE states (id INT, status STRING) WITH ('connector' = 'kafka', 'topic' = 's',
  'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE known (id INT, first_status STRING, last_status STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'print');
INSERT INTO known SELECT id, FIRST_VALUE(status), LAST_VALUE(status) FROM states GROUP BY id;
