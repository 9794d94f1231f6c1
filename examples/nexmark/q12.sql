-- q12, windows by the clock: how many bids of someone are read within ten seconds, whenever they were made.
CREATE TABLE q12 (bidder BIGINT, bids BIGINT, window_start TIMESTAMP_LTZ(3), window_end TIMESTAMP_LTZ(3));

INSERT INTO q12
SELECT bidder, COUNT(*), window_start, window_end
FROM TUMBLE(TABLE bid, DESCRIPTOR(arrived), INTERVAL '10' SECOND)
GROUP BY bidder, window_start, window_end;
