// ActionMemory: an operator's double click acts once.
//
// An action comes with an Idempotency-Key of its own. The first request with the key acts; later ones get its answer
// again. Kept in memory, for the newest actions alone: after a restart the second click is a new action, and the guards
// of the store decide: a record that was settled meanwhile answers 409 or 404.
//
// Belongs to the loop of the operators.
#pragma once

#include "admin/page_answer.h"

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <variant>

namespace oncekey {

class ActionMemory {
 public:
  // More actions than people click within the minutes that matter.
  static constexpr std::size_t kMost = 256;
  static constexpr std::size_t kKeyLengthMax = 255;

  struct First {};    // act, and tell the answer to end()
  struct UnderWay {}; // the first one has no answer yet
  struct Other {};    // the key was used for another request
  using Asked = std::variant<First, UnderWay, Other, PageAnswer>;

  // `who` keeps the keys of operators apart; `request` is what is asked for.
  Asked begin(std::string_view who, std::string_view key, std::string_view request);
  void end(std::string_view who, std::string_view key, const PageAnswer& answer);
  // It came to no end that another click should get: a later one may act.
  void forget(std::string_view who, std::string_view key);

 private:
  struct Remembered {
    std::string name;    // hash of who and key
    std::string request; // hash
    std::optional<PageAnswer> answer;
  };
  std::list<Remembered>::iterator find(std::string_view who, std::string_view key);
  std::list<Remembered> actions_; // oldest first; those under way are never forgotten
};

} // namespace oncekey
