// AccessLog: one line for each request, when it has been answered.
//
// Neither paths, keys, header values nor bodies: the route by its name, the key as a short hash. docs/SECURITY.md.
#pragma once

#include "base/line_file.h"
#include "http/server.h"

namespace oncekey {

// Stands in front of the handler whose requests it logs. One for each thread; they share the file.
class AccessLog final : public Handler {
 public:
  AccessLog(Handler& handler, LineFile& file, LogFormat format) : handler_(handler), file_(file), format_(format) {}
  Task<void> handle(Exchange& exchange) override;

 private:
  Handler& handler_;
  LineFile& file_;
  const LogFormat format_;
};

// The method if it is one of the usual, else "other": a made-up one may hold anything.
std::string_view shown_method(std::string_view method);

// The trace id of a W3C traceparent, 32 hex digits; empty for anything else.
std::string_view trace_id_of(std::string_view traceparent);

} // namespace oncekey
