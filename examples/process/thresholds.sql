-- Temperatures that leave their bounds, or come back; the bounds change, for all sensors, from the time of the change on.
CREATE TABLE left_bounds (sensor STRING, temperature DOUBLE, state STRING, bound DOUBLE, ts TIMESTAMP(3));

INSERT INTO left_bounds
SELECT * FROM bounded_temperatures(
    readings => TABLE readings PARTITION BY sensor ORDER BY ts,
    bounds => TABLE bounds ORDER BY ts BROADCAST,
    on_time => DESCRIPTOR(ts), uid => 'bounded');
