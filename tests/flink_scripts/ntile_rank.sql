CREATE TABLE scores (
  team STRING, player STRING, points INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts
) WITH ('connector' = 'datagen');
CREATE TABLE ranked (player STRING, place BIGINT) WITH ('connector' = 'print');
INSERT INTO ranked
SELECT player, place FROM (
  SELECT player, RANK() OVER (PARTITION BY team ORDER BY points DESC) AS place FROM scores
) WHERE place <= 2;
