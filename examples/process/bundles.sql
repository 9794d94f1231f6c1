-- A trigger of one's own: clicks in bundles of five, or of ten minutes.
CREATE TABLE bundles (user_id BIGINT, begin_at TIMESTAMP(3), clicks BIGINT);

INSERT INTO bundles
SELECT user_id, "begin", clicks
FROM count_or_time(TABLE clicks PARTITION BY user_id, size => 5, minutes => 10, on_time => DESCRIPTOR(ts), uid => 'open');
