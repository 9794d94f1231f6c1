-- q3, local item suggestion: who sells something of category 10 in Oregon, Idaho or California?
-- A join of all people and auctions so far: either may come first.
CREATE TABLE q3 (name STRING, city STRING, state STRING, id BIGINT);

INSERT INTO q3
SELECT seller.name, seller.city, seller.state, auction.id
FROM auction JOIN person AS seller ON auction.seller = seller.id
WHERE auction.category = 10 AND seller.state IN ('OR', 'ID', 'CA');
