CREATE TABLE mixed (id STRING, n INT) WITH ('connector' = 'kafka', 'topic' = 'm', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE hits (id STRING) WITH ('connector' = 'print');
INSERT INTO hits SELECT id FROM mixed WHERE n = '5' AND id > 3;
