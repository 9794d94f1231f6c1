-- q11, user sessions: how many bids someone makes until they stop for ten seconds.
CREATE TABLE q11 (bidder BIGINT, bids BIGINT, session_start TIMESTAMP(3), session_end TIMESTAMP(3));

INSERT INTO q11
SELECT bidder, COUNT(*), window_start, window_end
FROM SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)
GROUP BY bidder, window_start, window_end;
