-- Readings with the device's master data from a database.
CREATE TABLE events (
  device_id INT,
  reading DOUBLE,
  proc_time AS PROCTIME()
) WITH ('connector' = 'kafka', 'topic' = 'events', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

CREATE TABLE devices (
  id INT,
  name STRING,
  site STRING,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'jdbc',
  'url' = 'jdbc:postgresql://postgres:5432/plant',
  'table-name' = 'devices',
  'username' = 'reader',
  'password' = 'reader',
  'lookup.cache.max-rows' = '1000',
  'lookup.cache.ttl' = '10 min'
);

CREATE TABLE named_events (name STRING, site STRING, reading DOUBLE) WITH ('connector' = 'print');

INSERT INTO named_events
SELECT d.name, d.site, e.reading
FROM events AS e
LEFT JOIN devices FOR SYSTEM_TIME AS OF e.proc_time AS d ON e.device_id = d.id;
