-- q2, selection: the prices that are bid on every 123rd auction.
CREATE TABLE q2 (auction BIGINT, price BIGINT);

INSERT INTO q2
SELECT auction, price FROM bid WHERE auction % 123 = 0;
