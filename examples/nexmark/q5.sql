-- q5, hot items: which auctions had the most bids in the last ten seconds, every two seconds?
-- A join of windows: each auction's number of bids, and the greatest number of the same window.
CREATE TABLE q5 (auction BIGINT, bids BIGINT, window_start TIMESTAMP(3), window_end TIMESTAMP(3));

INSERT INTO q5
WITH counted AS (
    SELECT auction, window_start, window_end, COUNT(*) AS bids
    FROM HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND)
    GROUP BY auction, window_start, window_end
), hottest AS (
    SELECT window_start, window_end, MAX(bids) AS bids FROM counted GROUP BY window_start, window_end
)
SELECT counted.auction, counted.bids, counted.window_start, counted.window_end
FROM counted JOIN hottest
    ON counted.window_start = hottest.window_start AND counted.window_end = hottest.window_end AND counted.bids >= hottest.bids;
