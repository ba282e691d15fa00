#include "base/log.h"

#include "base/json_text.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace oncekey {
namespace {

// spdlog has the same levels in the same order, behind one more.
spdlog::level::level_enum spdlog_level(LogLevel level) {
  static_assert(spdlog::level::debug == 1 && spdlog::level::err == 1 + static_cast<int>(LogLevel::error));
  return static_cast<spdlog::level::level_enum>(1 + static_cast<int>(level));
}

bool needs_quotes(std::string_view value) {
  return value.empty() || std::any_of(value.begin(), value.end(), [](char c) {
           return c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f;
         });
}

// A value may hold what a client sent (a path, say): control bytes must not break the line or the terminal.
void append_value(std::string& line, std::string_view value) {
  if (!needs_quotes(value)) {
    line.append(value);
    return;
  }
  line.push_back('"');
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      line.push_back('\\');
      line.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      line.push_back(c);
    }
  }
  line.push_back('"');
}

} // namespace

std::string log_line(LogFormat format, std::string_view event, std::span<const LogField> fields) {
  const bool json = format == LogFormat::json;
  const auto append = json ? append_json_string : append_value;
  std::string line = json ? "\"event\":" : "event=";
  append(line, event);
  for (const LogField& field : fields) {
    if (json) {
      line.push_back(',');
      append_json_string(line, field.name);
      line.push_back(':');
    } else {
      line.append(" ").append(field.name).append("=");
    }
    if (json && field.is_number) {
      line += field.value;
    } else {
      append(line, field.value);
    }
  }
  return line;
}

struct Log::Impl {
  using Instant = std::chrono::steady_clock::time_point;
  struct Repeated {
    Instant quiet_until{};
    std::uint64_t left_out = 0;
  };
  std::string line_of(std::string_view event, std::initializer_list<LogField> fields) const {
    return log_line(format, event, {fields.begin(), fields.size()});
  }
  LogFormat format;
  std::shared_ptr<spdlog::logger> logger;
  std::mutex mutex;
  std::map<std::string, Repeated, std::less<>> repeated; // by event and what it is about
};

Log::Log(LogLevel least, LogFormat format) : impl_(std::make_unique<Impl>()) {
  impl_->format = format;
  impl_->logger = std::make_shared<spdlog::logger>("oncekey", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  const char* const pattern = format == LogFormat::json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})"
                                                        : "time=%Y-%m-%dT%H:%M:%S.%eZ level=%l %v";
  impl_->logger->set_pattern(pattern, spdlog::pattern_time_type::utc);
  impl_->logger->set_level(spdlog_level(least));
  impl_->logger->flush_on(spdlog::level::info);
}

Log::~Log() = default;

void Log::drop_below(LogLevel least) { impl_->logger->set_level(spdlog_level(least)); }

bool Log::enabled(LogLevel level) const { return impl_->logger->should_log(spdlog_level(level)); }

void Log::write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (!enabled(level)) return;
  impl_->logger->log(spdlog_level(level), "{}", impl_->line_of(event, fields));
}

void Log::always(std::string_view event, std::initializer_list<LogField> fields) {
  // Written to the sinks directly: the logger drops lines below its least level, sinks do not.
  const std::string line = impl_->line_of(event, fields);
  const spdlog::details::log_msg message(impl_->logger->name(), spdlog::level::info, line);
  for (const spdlog::sink_ptr& sink : impl_->logger->sinks()) {
    sink->log(message);
    sink->flush();
  }
}

void Log::seldom(LogLevel level, std::string_view event, std::string_view about, std::initializer_list<LogField> fields,
                 std::chrono::seconds quiet) {
  if (!enabled(level)) return;
  std::uint64_t left_out = 0;
  {
    std::string name(event);
    name.append(" ").append(about);
    const std::lock_guard lock(impl_->mutex);
    Impl::Repeated& repeated = impl_->repeated[std::move(name)];
    const Impl::Instant now = std::chrono::steady_clock::now();
    if (now < repeated.quiet_until) {
      ++repeated.left_out;
      return;
    }
    repeated.quiet_until = now + quiet;
    left_out = std::exchange(repeated.left_out, 0);
  }
  std::string line = impl_->line_of(event, fields);
  if (left_out > 0) {
    line += impl_->format == LogFormat::json ? ",\"left_out\":" : " left_out=";
    line += fmt::format_int(left_out).str();
  }
  impl_->logger->log(spdlog_level(level), "{}", line);
}

void Log::flush() { impl_->logger->flush(); }

} // namespace oncekey
