-- Decisions and proposals, one row a script.
CREATE TABLE scripts (key TEXT PRIMARY KEY, position BIGINT NOT NULL, record TEXT NOT NULL, seal TEXT);
CREATE INDEX scripts_by_position ON scripts (position);

-- The newest runs of each script, for people; the audit log has all. Times are microseconds since 1970.
CREATE TABLE script_runs (
    id BYTEA PRIMARY KEY,
    script TEXT NOT NULL,
    at BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    client TEXT NOT NULL,
    duration_ms BIGINT NOT NULL,
    outcome TEXT NOT NULL
);
CREATE INDEX script_runs_by_script ON script_runs (script, at);
