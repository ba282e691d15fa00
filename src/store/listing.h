// listing: which records a ListRequest asks for, the same for every embedded store.
#pragma once

#include <oncekey/record.h>
#include <oncekey/store.h>

namespace oncekey {

// Expired records are never listed: to every caller they are absent.
inline bool is_listed(const ListRequest& request, const RecordId& id, const Record& record, Time now) {
  if (record.expired(now)) return false;
  if (request.state && record.state != *request.state) return false;
  if (request.abandoned_only && !record.abandoned(now)) return false;
  if (request.staged && record.staged != *request.staged) return false;
  return request.id_prefix.empty() || to_hex(id).starts_with(request.id_prefix);
}

// What a listing tells of a record: all but the headers and the body.
inline Record as_listed(Record record) {
  if (record.response) {
    record.response->headers.clear();
    record.response->body.clear();
  }
  return record;
}

} // namespace oncekey
