// PageAnswer: what a page of the admin listener is answered with.
//
// An error is {"error": a sentence for people that says what to do, "code": a word for programs}.
#pragma once

#include <oncekey/headers.h>
#include <oncekey/result.h>

#include <boost/json/object.hpp>

#include <string>
#include <string_view>

namespace oncekey {

struct PageAnswer {
  int status = 200;
  std::string body{};
  std::string content_type = "application/json";
  Headers headers{}; // beside those that every answer has
};

PageAnswer json_answer(const boost::json::object& body, int status = 200);

// Without a code it is the usual one of the status.
PageAnswer refused(int status, std::string_view message, std::string_view code = {});
// Of a store, or of what it was asked for: 404 for `invalid`, 409 for `conflict`, else 503.
PageAnswer refused(const Fault& fault);

} // namespace oncekey
