#include "http/message.h"

#include <boost/beast/http/status.hpp>

#include <ostream>

namespace oncekey {

bool status_forbids_body(int status) { return status / 100 == 1 || status == 204 || status == 304; }

std::string_view usual_reason(int status) {
  // Beast has the names from before RFC 9110.
  if (status == 413) return "Content Too Large";
  if (status == 422) return "Unprocessable Content";
  const auto known = boost::beast::http::int_to_status(static_cast<unsigned>(status));
  if (known == boost::beast::http::status::unknown) return {};
  const auto reason = boost::beast::http::obsolete_reason(known);
  return {reason.data(), reason.size()};
}

} // namespace oncekey
