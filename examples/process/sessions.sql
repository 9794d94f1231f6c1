-- Sessions: with a gap that depends on the page, with a fixed gap, and the same by SESSION.
CREATE TABLE patient_sessions (user_id BIGINT, begin_at TIMESTAMP(3), until_at TIMESTAMP(3), clicks BIGINT);
CREATE TABLE fixed_sessions (user_id BIGINT, begin_at TIMESTAMP(3), until_at TIMESTAMP(3), clicks BIGINT);
CREATE TABLE built_in_sessions (user_id BIGINT, begin_at TIMESTAMP(3), until_at TIMESTAMP(3), clicks BIGINT);

EXECUTE STATEMENT SET BEGIN
    INSERT INTO patient_sessions
    SELECT user_id, "begin", until, clicks
    FROM patient_sessions(TABLE clicks PARTITION BY user_id, on_time => DESCRIPTOR(ts), uid => 'patient');

    INSERT INTO fixed_sessions
    SELECT user_id, "begin", until, clicks
    FROM fixed_sessions(TABLE clicks PARTITION BY user_id, minutes => 10, on_time => DESCRIPTOR(ts), uid => 'fixed');

    INSERT INTO built_in_sessions
    SELECT user_id, window_start, window_end, COUNT(*)
    FROM SESSION(TABLE clicks PARTITION BY user_id, DESCRIPTOR(ts), INTERVAL '10' MINUTE)
    GROUP BY user_id, window_start, window_end;
END;
