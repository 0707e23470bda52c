-- Texts of the versions that were decided about or proposed, by their hash. Times are microseconds since 1970.
CREATE TABLE script_copies (sha256 TEXT PRIMARY KEY, source TEXT NOT NULL, at BIGINT NOT NULL);
