-- Per state its two largest cities, with LATERAL.
CREATE TABLE cities (state STRING, city STRING, people INT) WITH ('connector' = 'datagen');
CREATE TABLE top_cities (state STRING, city STRING, people INT) WITH ('connector' = 'print');
INSERT INTO top_cities
SELECT s.state, c.city, c.people
FROM (SELECT DISTINCT state FROM cities) s,
LATERAL (
  SELECT city, people FROM cities WHERE state = s.state ORDER BY people DESC LIMIT 2
) AS c;
