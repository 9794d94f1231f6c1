-- q6, average selling price by seller: over their last ten auctions that somebody bid for.
-- Each auction's best bid changes with its bids, so does which auctions are a seller's last ones, and so does the average. (The benchmark
-- asks for it by OVER, which takes rows that are final, and which Flink refuses here as well.)
CREATE TABLE q6 (seller BIGINT, average DOUBLE, PRIMARY KEY (seller) NOT ENFORCED);

INSERT INTO q6
WITH winning AS (
    SELECT auction.id, auction.seller, auction.expires, MAX(bid.price) AS price
    FROM auction JOIN bid ON bid.auction = auction.id AND bid.`dateTime` BETWEEN auction.`dateTime` AND auction.expires
    GROUP BY auction.id, auction.seller, auction.expires
), last_ten AS (
    SELECT seller, price FROM winning QUALIFY ROW_NUMBER() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) <= 10
)
SELECT seller, AVG(price) FROM last_ten GROUP BY seller;
