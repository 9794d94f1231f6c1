CREATE TABLE bookings (room INT, from_time TIMESTAMP(3), to_time TIMESTAMP(3)) WITH ('connector' = 'datagen');
CREATE TABLE noon (room INT) WITH ('connector' = 'print');
INSERT INTO noon
SELECT room FROM bookings
WHERE (from_time, to_time) OVERLAPS (TIMESTAMP '2026-01-01 11:30:00', INTERVAL '1' HOUR);
