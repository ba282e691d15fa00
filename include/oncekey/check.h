// ONCEKEY_CHECK: an invariant of Oncekey's own code, checked in every build.
//
// A failed check prints the condition, the sentence and the place in the source to standard error and ends the process
// at once. Nothing is unwound and no destructor runs: going on with a broken invariant is how a customer is charged
// twice, and what is durable stays durable after an abrupt end.
//
// A check is never made on data from the network, the disk or a caller. Wrong data is expected, and gets a Fault
// (result.h). So a failed check is always a bug of Oncekey, or of a program that broke a contract of these headers,
// such as taking the value of a Result that holds a fault.
#pragma once

namespace oncekey {

// What ONCEKEY_CHECK calls. May be called from any thread.
[[noreturn]] void check_failed(const char* condition, const char* sentence, const char* file, int line);

} // namespace oncekey

// `sentence` is a string literal that says what should have been true.
#define ONCEKEY_CHECK(condition, sentence)                               \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::oncekey::check_failed(#condition, sentence, __FILE__, __LINE__); \
  } while (false)
