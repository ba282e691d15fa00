#include "cli/keys_view.h"

#include "cli/table.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <boost/json.hpp>

#include <algorithm>
#include <chrono>
#include <vector>

namespace oncekey {
namespace {

namespace json = boost::json;

// Digits of an id that are shown: enough to distinguish keys, and accepted as a prefix.
constexpr std::size_t kIdShown = 12;
constexpr std::size_t kTextShown = 40;
constexpr std::size_t kBodyShown = 4096;

const json::value& member(const json::value& object, std::string_view name) {
  static const json::value nothing;
  if (!object.is_object()) return nothing;
  const json::value* found = object.as_object().if_contains(json::string_view(name.data(), name.size()));
  return found == nullptr ? nothing : *found;
}

std::string text_of(const json::value& value, std::size_t length_max) {
  if (value.is_null()) return "-";
  if (const json::string* text = value.if_string())
    return text->empty() ? "-" : printable({text->data(), text->size()}, length_max);
  return printable(json::serialize(value), length_max);
}

bool is_rerun(const json::value& record) {
  return member(record, "rerun") == json::value(true) && member(record, "state") == json::value("in_progress");
}

// "abandoned" is not a state of its own in the record; to an operator it is the most interesting one.
std::string state_of(const json::value& record) {
  if (member(record, "abandoned") == json::value(true)) return "abandoned";
  if (is_rerun(record)) return "rerun allowed";
  return text_of(member(record, "state"), kTextShown);
}

// What an operator has to do, in a few words; empty if nothing.
std::string next_of(const json::value& record) {
  if (is_rerun(record)) return "next retry executes";
  const json::value& waits_for = member(record, "waits_for");
  if (waits_for == json::value("operator")) return "decide: release, complete or rerun";
  if (waits_for == json::value("retry")) return "next retry executes, or you decide";
  return "";
}

std::string request_of(const json::value& record, std::size_t length_max) {
  return fmt::format("{} {}", text_of(member(record, "method"), 16), text_of(member(record, "target"), length_max));
}

// Line by line, so that a body keeps its shape; only bytes that could harm a terminal are replaced.
std::string view_of_body(std::string_view body) {
  if (body.empty()) return "";
  std::string view = "\n";
  const bool cut = body.size() > kBodyShown;
  body = body.substr(0, kBodyShown);
  for (std::size_t end = 0; end != std::string_view::npos && !body.empty();) {
    end = body.find('\n');
    view += printable(body.substr(0, end), kBodyShown) + "\n";
    if (end != std::string_view::npos) body.remove_prefix(end + 1);
  }
  return cut ? view + "(cut here; --json shows all of it)\n" : view;
}

std::string view_of_headers(const json::value& message) {
  std::string view;
  const json::array* headers = member(message, "headers").if_array();
  if (headers == nullptr) return view;
  for (const json::value& header : *headers) {
    const json::array* pair = header.if_array();
    if (pair == nullptr || pair->size() != 2) continue;
    view += fmt::format("{}: {}\n", text_of((*pair)[0], 128), text_of((*pair)[1], 1024));
  }
  return view;
}

std::string view_of_response(const json::value& response) {
  std::string view =
      fmt::format("\n{} {}\n", text_of(member(response, "status"), 8), text_of(member(response, "reason"), kTextShown));
  const json::value& key_id = member(member(response, "sealed"), "key_id");
  if (!key_id.is_null()) return view + fmt::format("(headers and body are sealed with key {})\n", text_of(key_id, 10));
  view += view_of_headers(response);
  const json::value& encoding = member(response, "body_encoding");
  if (encoding.is_string() && encoding.as_string() == "base64") view += "(body in base64)\n";
  const json::value& body = member(response, "body");
  if (body.is_string()) view += view_of_body({body.as_string().data(), body.as_string().size()});
  return view;
}

// "2026-01-02T03:04:05.678Z" as "2026-01-02 03:04:05Z".
std::string to_the_second(std::string time) {
  if (time.size() < 20) return time;
  time[10] = ' ';
  return time.substr(0, 19) + "Z";
}

// Cuts the last two columns so that a row fits into a line of the terminal.
void fit_last_columns(std::vector<std::vector<std::string>>& rows, std::size_t width) {
  constexpr std::size_t kLeast = 12;
  const std::size_t last = rows.front().size() - 1;
  for (const std::size_t column : {last, last - 1}) {
    std::size_t whole = 0;
    std::size_t widest = 0;
    for (std::size_t at = 0; at <= last; ++at) {
      std::size_t longest = 0;
      for (const auto& row : rows) longest = std::max(longest, row[at].size());
      if (at == column) widest = longest;
      whole += longest + (at < last ? 2 : 0);
    }
    if (width == 0 || whole <= width) return;
    const std::size_t excess = whole - width;
    const std::size_t room = std::max(kLeast, widest > excess ? widest - excess : 0);
    for (auto& row : rows) row[column] = printable(row[column], room);
  }
}

} // namespace

std::string view_of_time(const json::value& time) {
  if (time.is_string()) return text_of(time, kTextShown);
  if (!time.is_number()) return "-";
  json::error_code error;
  const auto millis = time.to_number<std::int64_t>(error);
  if (error || millis <= 0) return "-";
  const auto seconds = std::chrono::sys_seconds(std::chrono::seconds(millis / 1000));
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)),
                     millis % 1000);
}

namespace {

// How many records were looked at, and whether there are more.
std::string view_of_look(const json::value& answer, bool any) {
  const json::value& next = member(answer, "next");
  if (next.is_string()) return fmt::format("(there are more: --after {})\n", text_of(next, 128));
  const std::string looked = text_of(member(answer, "looked"), 20);
  const json::value& missing = member(answer, "missing");
  if (member(answer, "more") == json::value(true))
    return fmt::format("(looked at {} keys; more of them fit: --limit shows up to 10000)\n", looked);
  if (member(answer, "whole") != json::value(false)) {
    if (!missing.is_string()) return "";
    return fmt::format("(looked at all {} keys{}; to ask for one alone, give {})\n", looked,
                       any ? "" : "; none of them fits", text_of(missing, 255));
  }
  const std::string narrow = missing.is_string() ? text_of(missing, 255) : "--route, --state, or --key and --principal";
  return fmt::format("(looked at {} keys, not all{}: narrow it with {})\n", looked, any ? "" : "; none of them fits",
                     narrow);
}

} // namespace

std::string view_of_list(const json::value& answer, std::size_t width) {
  const json::array* keys = member(answer, "keys").if_array();
  if (keys == nullptr || keys->empty()) {
    const std::string look = view_of_look(answer, false);
    return look.empty() ? "no keys\n" : look;
  }
  std::vector<std::vector<std::string>> rows{{"ID", "STATE", "STATUS", "FIRST RECEIVED", "KEY", "REQUEST"}};
  for (const json::value& key : *keys) {
    const std::string id = text_of(member(key, "id"), 64);
    rows.push_back({id.substr(0, kIdShown), state_of(key), text_of(member(key, "status"), 8),
                    to_the_second(view_of_time(member(key, "first_received"))), text_of(member(key, "key"), kTextShown),
                    request_of(key, kTextShown)});
  }
  fit_last_columns(rows, width);
  return format_table(rows) + view_of_look(answer, true);
}

std::string view_of_record(const json::value& record) {
  std::vector<std::vector<std::string>> rows{
      {"id", text_of(member(record, "id"), 64)},
      {"state", state_of(record)},
      {"next", next_of(record)},
      {"key", text_of(member(record, "key"), 255)},
      {"route", text_of(member(record, "route"), 255)},
      {"request", request_of(record, 255)},
      {"fence", text_of(member(record, "fence"), 20)},
      {"gateway", text_of(member(record, "gateway"), 32)},
      {"trace", text_of(member(record, "trace"), 32)},
      {"sealed with key", text_of(member(member(record, "sealed"), "key_id"), 10)},
      {"first received", view_of_time(member(record, "first_received"))},
      {"lease until", view_of_time(member(record, "lease_until"))},
      {"settled at", view_of_time(member(record, "settled_at"))},
      {"unknown since", view_of_time(member(record, "indeterminate_since"))},
      {"expires at", view_of_time(member(record, "expires_at"))},
  };
  // What does not apply is not shown.
  std::erase_if(rows, [](const std::vector<std::string>& row) { return row[1].empty() || row[1] == "-"; });
  std::string view = format_table(rows);
  const json::value& response = member(record, "response");
  return response.is_object() ? view + view_of_response(response) : view;
}

std::string view_of_jobs(const json::value& answer) {
  const json::array* jobs = member(answer, "jobs").if_array();
  if (jobs == nullptr || jobs->empty()) return "no jobs\n";
  std::vector<std::vector<std::string>> rows{
      {"ID", "STATE", "ATTEMPTS", "NEXT", "RECEIVED", "DESTINATION", "KEY", "REASON"}};
  for (const json::value& job : *jobs) {
    const std::string id = text_of(member(job, "id"), 64);
    rows.push_back({id.substr(0, kIdShown), text_of(member(job, "state"), 16), text_of(member(job, "attempts"), 8),
                    view_of_time(member(job, "next_attempt")), view_of_time(member(job, "received")),
                    text_of(member(job, "destination"), kTextShown), text_of(member(job, "key"), kTextShown),
                    text_of(member(job, member(job, "why_dead").is_string() ? "why_dead" : "last"), kTextShown)});
  }
  std::string view = format_table(rows);
  if (member(answer, "more") == json::value(true))
    view += fmt::format("({} are shown and there are more: --limit shows up to 10000, --state some of them)\n",
                        jobs->size());
  return view;
}

std::string view_of_job(const json::value& job) {
  const json::value& message = member(job, "message");
  std::string view = format_table({
      {"id", text_of(member(job, "id"), 64)},
      {"state", text_of(member(job, "state"), 16)},
      {"destination", text_of(member(job, "destination"), 255)},
      {"key", text_of(member(job, "key"), 255)},
      {"goes to",
       fmt::format("{} {}", text_of(member(message, "method"), 16), text_of(member(message, "target"), 255))},
      {"attempts", text_of(member(job, "attempts"), 8)},
      {"last", text_of(member(job, "last"), 255)},
      {"why dead", text_of(member(job, "why_dead"), 255)},
      {"received", view_of_time(member(job, "received"))},
      {"next attempt", view_of_time(member(job, "next_attempt"))},
      {"ended", view_of_time(member(job, "ended"))},
      {"remembered until", view_of_time(member(job, "remembered_until"))},
  });
  if (!message.is_object()) return view;
  view += "\n";
  view += view_of_headers(message);
  const json::value& body = member(message, "body");
  if (body.is_string()) view += view_of_body({body.as_string().data(), body.as_string().size()});
  return view;
}

std::string view_of_error(const std::string& body) {
  json::error_code error;
  const json::value parsed = json::parse(body, error);
  if (!error && member(parsed, "error").is_string()) return text_of(member(parsed, "error"), 1024);
  return body.empty() ? "no reason was given" : printable(body, 1024);
}

} // namespace oncekey
