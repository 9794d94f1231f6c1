-- When a machine changes its state, and from which.
CREATE TABLE machine_states (
  machine STRING,
  state STRING,
  at_time TIMESTAMP(3),
  WATERMARK FOR at_time AS at_time - INTERVAL '5' SECOND
) WITH ('connector' = 'kafka', 'topic' = 'states', 'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json');

CREATE TABLE transitions (machine STRING, was STRING, became STRING, at_time TIMESTAMP(3)) WITH ('connector' = 'print');

INSERT INTO transitions
SELECT machine, previous, state, at_time
FROM (
  SELECT machine, state, at_time,
         LAG(state, 1) OVER (PARTITION BY machine ORDER BY at_time) AS previous
  FROM machine_states
)
WHERE previous IS NULL OR previous <> state;
