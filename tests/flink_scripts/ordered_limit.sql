CREATE TABLE scores (player STRING, points INT) WITH ('connector' = 'kafka', 'topic' = 's', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');
CREATE TABLE best (player STRING, points INT) WITH ('connector' = 'print');
INSERT INTO best SELECT player, points FROM scores ORDER BY points DESC LIMIT 2;
