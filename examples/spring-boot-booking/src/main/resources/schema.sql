CREATE TABLE IF NOT EXISTS seats (
    name VARCHAR PRIMARY KEY,
    guest VARCHAR,
    fence BIGINT NOT NULL -- the largest one that was seen
);
