CREATE TABLE web (id INT, v STRING) WITH ('connector' = 'datagen');
CREATE TABLE app (id INT, v STRING) WITH ('connector' = 'datagen');
CREATE TABLE all_events (source STRING, id INT, v STRING) WITH ('connector' = 'print');
INSERT INTO all_events
SELECT 'web', id, v FROM web
UNION ALL
SELECT 'app', id, v FROM app;
