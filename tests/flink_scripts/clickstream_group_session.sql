-- The same with the older group window.
CREATE TABLE user_actions (
  `user` VARCHAR,
  action VARCHAR,
  rowtime TIMESTAMP(3),
  WATERMARK FOR rowtime AS rowtime - INTERVAL '2' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = 'actions',
  'properties.bootstrap.servers' = 'broker:9092',
  'properties.group.id' = 'sessionizer',
  'format' = 'csv',
  'csv.field-delimiter' = ';'
);

CREATE TABLE action_sessions (
  `user` VARCHAR,
  session_start TIMESTAMP(3),
  session_end TIMESTAMP(3),
  actions BIGINT,
  buys BIGINT
) WITH ('connector' = 'filesystem', 'path' = 'file:///tmp/action_sessions', 'format' = 'csv');

INSERT INTO action_sessions
SELECT
  `user`,
  SESSION_START(rowtime, INTERVAL '10' MINUTE),
  SESSION_END(rowtime, INTERVAL '10' MINUTE),
  COUNT(*),
  SUM(CASE WHEN action = 'buy' THEN 1 ELSE 0 END)
FROM user_actions
GROUP BY `user`, SESSION(rowtime, INTERVAL '10' MINUTE);
