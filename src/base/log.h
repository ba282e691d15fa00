// log: one line for each event: a short event name and `name=value` pairs, or the same as a JSON object.
//
// Secrets never get here: callers pass short hashes of keys (short_hash), the name of a route instead of a path, and
// never header values.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace oncekey {

enum class LogLevel { debug, info, warning, error };
enum class LogFormat { text, json };

// One pair of a log line. Numbers and text alike; text with spaces or quotes is quoted when written.
struct LogField {
  template <class T>
  LogField(std::string_view field_name, const T& field_value)
      : name(field_name),
        value(fmt::format("{}", field_value)),
        is_number(std::is_arithmetic_v<T> && !std::is_same_v<T, char>) {}
  std::string_view name;
  std::string value;
  bool is_number; // or true or false: JSON writes it without quotes
};

// The event and its fields as they stand in a line, without the time in front: `event=x a=1`, or `"event":"x","a":1`
// without the braces. What comes from a client (a path, say) cannot break the line, and JSON stays valid.
std::string log_line(LogFormat format, std::string_view event, std::span<const LogField> fields);

// May be used from several threads. `main` makes one and hands it to the parts that log; there is no global logger.
class Log {
 public:
  // To standard error; lines below `least` are dropped.
  explicit Log(LogLevel least, LogFormat format = LogFormat::text);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  bool enabled(LogLevel level) const;
  // Lines below `least` are dropped from now on. From any thread.
  void drop_below(LogLevel least);
  void write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields);
  // Written whatever the least level is: for actions that must be on record, such as an operator's.
  void always(std::string_view event, std::initializer_list<LogField> fields);
  void info(std::string_view event, std::initializer_list<LogField> fields = {}) {
    write(LogLevel::info, event, fields);
  }
  void warning(std::string_view event, std::initializer_list<LogField> fields = {}) {
    write(LogLevel::warning, event, fields);
  }
  void error(std::string_view event, std::initializer_list<LogField> fields = {}) {
    write(LogLevel::error, event, fields);
  }
  // For events that a client can cause as often as it likes: at most one line a second for each event and `about` (a
  // route, say). The next line says how many were left out. `about` must be one of few values: memory grows with them.
  void seldom(LogLevel level, std::string_view event, std::string_view about, std::initializer_list<LogField> fields,
              std::chrono::seconds quiet = std::chrono::seconds(1));
  void flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace oncekey
