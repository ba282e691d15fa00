// log: one line an event, `name=value` pairs behind a short event name.
//
// Secrets never get here: callers pass short hashes of keys (short_hash), the name of a route instead of a path, and
// never header values.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace oncekey {

enum class LogLevel { debug, info, warning, error };

// One pair of a log line. Numbers and text alike; text with spaces or quotes is quoted when written.
struct LogField {
  template <class T>
  LogField(std::string_view field_name, const T& field_value)
      : name(field_name), value(fmt::format("{}", field_value)) {}
  std::string_view name;
  std::string value;
};

// Safe to use from several threads. Given to whoever needs it by main; there is no global logger.
class Log {
 public:
  // To standard error; lines below `least` are dropped.
  explicit Log(LogLevel least);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  bool enabled(LogLevel level) const;
  // Lines below `least` are dropped from now on. From any thread.
  void drop_below(LogLevel least);
  void write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields);
  // Whatever the least level is: for what must be on record.
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
  // For what a client can cause as often as it likes: one line a second for each event and `about` (a route, say). The
  // next line says how many were left out. `about` is one of few values, or memory would grow.
  void seldom(LogLevel level, std::string_view event, std::string_view about, std::initializer_list<LogField> fields);
  void flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace oncekey
