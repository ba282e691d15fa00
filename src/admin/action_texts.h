// action_texts: what each action of an operator means, and its risk. The console and the command line show these words.
#pragma once

#include <span>
#include <string_view>

namespace oncekey {

struct ActionText {
  std::string_view action; // as the API spells it
  std::string_view title;
  std::string_view meaning;
  std::string_view risk;
};

std::span<const ActionText> key_actions();
std::span<const ActionText> job_actions();
// Of an action that is in one of the two.
const ActionText& text_of(std::span<const ActionText> actions, std::string_view action);

} // namespace oncekey
