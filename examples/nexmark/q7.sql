-- q7, highest bid: the bids with the highest price of every ten seconds.
-- A window's highest price is known when it ends; the bids of those ten seconds wait for it: a join within an interval.
CREATE TABLE q7 (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra STRING);

INSERT INTO q7
WITH highest AS (
    SELECT window_time, MAX(price) AS price
    FROM TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)
    GROUP BY window_start, window_end, window_time
)
SELECT bid.auction, bid.bidder, bid.price, bid.`dateTime`, bid.extra
FROM bid JOIN highest
    ON bid.price = highest.price
    AND bid.`dateTime` BETWEEN highest.window_time - INTERVAL '9.999' SECOND AND highest.window_time;
