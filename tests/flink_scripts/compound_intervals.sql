CREATE TABLE tickets (id INT, opened TIMESTAMP(3)) WITH ('connector' = 'datagen');
CREATE TABLE deadlines (id INT, answer_by TIMESTAMP(3), close_by TIMESTAMP(3), review TIMESTAMP(3)) WITH ('connector' = 'print');
INSERT INTO deadlines
SELECT id, opened + INTERVAL '4:30' HOUR TO MINUTE, opened + INTERVAL '1 02:03:04' DAY TO SECOND, opened + INTERVAL '1-02' YEAR TO MONTH
FROM tickets;
