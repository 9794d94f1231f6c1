CREATE TABLE shifts (worker INT, began TIME) WITH ('connector' = 'datagen');
CREATE TABLE hours (worker INT, from_hour TIME, to_hour TIME) WITH ('connector' = 'print');
INSERT INTO hours SELECT worker, FLOOR(began TO HOUR), CEIL(began TO HOUR) FROM shifts;
