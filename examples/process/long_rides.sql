-- Rides that have lasted for two hours, as soon as they have.
CREATE TABLE long_rides (ride_id BIGINT, taxi STRING, begun TIMESTAMP(3));

INSERT INTO long_rides
SELECT ride_id, taxi, begun
FROM long_rides(TABLE rides PARTITION BY ride_id, minutes => 120, on_time => DESCRIPTOR(ts), uid => 'open_rides');
