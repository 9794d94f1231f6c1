-- q8, monitor new users: people who came and opened an auction within the same ten seconds.
-- A join of windows of two streams.
CREATE TABLE q8 (id BIGINT, name STRING, window_start TIMESTAMP(3));

INSERT INTO q8
WITH came AS (
    SELECT id, name, window_start, window_end
    FROM TUMBLE(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)
    GROUP BY id, name, window_start, window_end
), sold AS (
    SELECT seller, window_start, window_end
    FROM TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)
    GROUP BY seller, window_start, window_end
)
SELECT came.id, came.name, came.window_start
FROM came JOIN sold
    ON came.id = sold.seller AND came.window_start = sold.window_start AND came.window_end = sold.window_end;
