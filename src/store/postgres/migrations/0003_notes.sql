R"sql(
-- Small texts that the gateways of a store keep for themselves, by name: the heads of their audit logs
-- (store/open_store.h).
CREATE TABLE oncekey.note (
  name  text PRIMARY KEY,
  value bytea NOT NULL
) WITH (fillfactor = 10); -- replaced every few seconds: all versions stay on one page
)sql"
