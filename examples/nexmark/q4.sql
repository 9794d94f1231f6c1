-- q4, average price for a category: of what the highest bids were that came while an auction was open.
-- An auction's highest bid changes with its bids, and the average with that.
CREATE TABLE q4 (category BIGINT, average DOUBLE, PRIMARY KEY (category) NOT ENFORCED);

INSERT INTO q4
WITH winning AS (
    SELECT auction.id, auction.category, MAX(bid.price) AS price
    FROM auction JOIN bid ON bid.auction = auction.id AND bid.`dateTime` BETWEEN auction.`dateTime` AND auction.expires
    GROUP BY auction.id, auction.category
)
SELECT category, AVG(price) FROM winning GROUP BY category;
