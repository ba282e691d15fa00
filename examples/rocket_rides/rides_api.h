// The API: POST /rides books, GET /rides/ID shows. Users prove who they are with "Authorization: Bearer TOKEN".
#pragma once

#include "http.h"

#include <oncekey/runner.h>

#include <cstdint>
#include <optional>

namespace rides {

class RidesApi {
 public:
  // The runner has the operation book_ride, and its database our tables.
  explicit RidesApi(oncekey::Runner& runner) : runner_(runner) {}

  HttpReply answer(const HttpRequest& request) const;

 private:
  HttpReply book(const HttpRequest& request, std::int64_t user) const;
  HttpReply show(std::int64_t user, std::string_view ride) const;
  std::optional<std::int64_t> user_behind(const HttpRequest& request) const;

  oncekey::Runner& runner_;
};

} // namespace rides
