// ONCEKEY_CHECK: an invariant of our own code, checked in every build.
//
// Never used on data that came from the network or the disk: those get a Fault. A failed check prints the sentence
// and ends the process at once, because going on with a broken invariant is how a customer is charged twice.
#pragma once

namespace oncekey {

[[noreturn]] void check_failed(const char* condition, const char* sentence, const char* file, int line);

} // namespace oncekey

#define ONCEKEY_CHECK(condition, sentence)                               \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::oncekey::check_failed(#condition, sentence, __FILE__, __LINE__); \
  } while (false)
