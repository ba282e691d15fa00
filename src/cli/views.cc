#include "cli/views.h"

#include <oncekey/check.h>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace oncekey {
namespace {

namespace json = boost::json;

// Digits of an id that are shown: enough to distinguish keys, and accepted as a prefix.
constexpr std::size_t kIdShown = 12;
constexpr std::size_t kTextShown = 40;
constexpr std::size_t kBodyShown = 4096;

std::string text_of(const json::value& value, std::size_t length_max) {
  if (value.is_null()) return "-";
  if (const json::string* text = value.if_string())
    return text->empty() ? "-" : printable({text->data(), text->size()}, length_max);
  return printable(json::serialize(value), length_max);
}

std::string text_at(const json::value& object, std::string_view name, std::size_t length_max) {
  return text_of(member(object, name), length_max);
}
std::string time_at(const json::value& object, std::string_view name) { return view_of_time(member(object, name)); }

bool is_rerun(const json::value& record) {
  return member(record, "rerun") == json::value(true) && member(record, "state") == json::value("in_progress");
}

// "abandoned" is not a state of its own in the record; to an operator it is the most interesting one.
std::string state_of(const json::value& record) {
  if (member(record, "abandoned") == json::value(true)) return "abandoned";
  if (is_rerun(record)) return "rerun allowed";
  return text_at(record, "state", kTextShown);
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
  return fmt::format("{} {}", text_at(record, "method", 16), text_at(record, "target", length_max));
}

// Line by line, so that a body keeps its shape; only bytes that could harm a terminal are replaced.
std::string view_of_body(const json::value& message) {
  const json::string* const text = member(message, "body").if_string();
  if (text == nullptr || text->empty()) return "";
  std::string_view body(text->data(), text->size());
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
  std::string view = fmt::format("\n{} {}\n", text_at(response, "status", 8), text_at(response, "reason", kTextShown));
  const json::value& key_id = member(member(response, "sealed"), "key_id");
  if (!key_id.is_null()) return view + fmt::format("(headers and body are sealed with key {})\n", text_of(key_id, 10));
  view += view_of_headers(response);
  if (member(response, "body_encoding") == "base64") view += "(body in base64)\n";
  return view + view_of_body(response);
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

// How many records were looked at, and whether there are more.
std::string view_of_look(const json::value& answer, bool any) {
  const json::value& next = member(answer, "next");
  if (next.is_string()) return fmt::format("(there are more: --after {})\n", text_of(next, 128));
  const std::string looked = text_at(answer, "looked", 20);
  const json::value& missing = member(answer, "missing");
  if (member(answer, "more") == json::value(true))
    return fmt::format("(looked at {} keys; more of them fit: --limit shows up to 10000)\n", looked);
  if (member(answer, "whole") != json::value(false)) {
    if (!missing.is_string()) return "";
    return fmt::format("(all keys were searched{}; to ask for one alone, give {})\n", any ? "" : ", and none fits",
                       text_of(missing, 255));
  }
  const std::string narrow = missing.is_string() ? text_of(missing, 255) : "--route, --state, or --key and --principal";
  return fmt::format("(looked at {} keys, not all{}: narrow it with {})\n", looked, any ? "" : "; none of them fits",
                     narrow);
}

} // namespace

const json::value& member(const json::value& object, std::string_view name) {
  static const json::value nothing;
  const json::object* const members = object.if_object();
  const json::value* const found = members == nullptr ? nullptr : members->if_contains({name.data(), name.size()});
  return found == nullptr ? nothing : *found;
}

std::string text_of_member(const json::value& object, std::string_view name) { return text_at(object, name, 255); }

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

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return "";
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    ONCEKEY_CHECK(row.size() == widths.size(), "every row of a table has the cells of the first");
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      text += row[column];
      if (column + 1 < row.size()) text.append(widths[column] - row[column].size() + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

std::string printable(std::string_view text, std::size_t length_max) {
  std::string safe(text.size() > length_max ? text.substr(0, length_max) : text);
  for (char& c : safe) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte >= 0x7f) c = '?';
  }
  if (text.size() > length_max && length_max > 3) safe.replace(length_max - 3, 3, "...");
  return safe;
}

std::string view_of_list(const json::value& answer, std::size_t width) {
  const json::array* keys = member(answer, "keys").if_array();
  if (keys == nullptr || keys->empty()) {
    const std::string look = view_of_look(answer, false);
    return look.empty() ? "no keys\n" : look;
  }
  std::vector<std::vector<std::string>> rows{{"ID", "STATE", "STATUS", "FIRST RECEIVED", "KEY", "REQUEST"}};
  for (const json::value& key : *keys) {
    const std::string id = text_at(key, "id", 64);
    rows.push_back({id.substr(0, kIdShown), state_of(key), text_at(key, "status", 8),
                    to_the_second(time_at(key, "first_received")), text_at(key, "key", kTextShown),
                    request_of(key, kTextShown)});
  }
  fit_last_columns(rows, width);
  return format_table(rows) + view_of_look(answer, true);
}

std::string view_of_timeline(const json::value& record) {
  const json::array* const events = member(record, "timeline").if_array();
  if (events == nullptr || events->empty()) return "";
  std::vector<std::vector<std::string>> rows;
  for (const json::value& event : *events) {
    std::string what = text_at(event, "text", 255);
    if (!member(event, "count").is_null()) what += fmt::format(" ({} of them)", text_at(event, "count", 20));
    if (!member(event, "who").is_null()) what += fmt::format(" by {}", text_at(event, "who", 255));
    if (!member(event, "reason").is_null()) what += fmt::format(": {}", text_at(event, "reason", 255));
    rows.push_back({time_at(event, "at"), text_at(event, "event", kTextShown), std::move(what)});
  }
  return "\n" + format_table(rows);
}

std::string view_of_record(const json::value& record) {
  std::vector<std::vector<std::string>> rows{
      {"id", text_at(record, "id", 64)},
      {"state", state_of(record)},
      {"next", next_of(record)},
      {"key", text_at(record, "key", 255)},
      {"route", text_at(record, "route", 255)},
      {"request", request_of(record, 255)},
      {"fence", text_at(record, "fence", 20)},
      {"gateway", text_at(record, "gateway", 32)},
      {"trace", text_at(record, "trace", 32)},
      {"first received", time_at(record, "first_received")},
      {"lease until", time_at(record, "lease_until")},
      {"settled at", time_at(record, "settled_at")},
      {"unknown since", time_at(record, "indeterminate_since")},
      {"expires at", time_at(record, "expires_at")},
  };
  // What does not apply is not shown.
  std::erase_if(rows, [](const std::vector<std::string>& row) { return row[1].empty() || row[1] == "-"; });
  std::string view = format_table(rows) + view_of_timeline(record);
  const json::value& response = member(record, "response");
  return response.is_object() ? view + view_of_response(response) : view;
}

std::string view_of_jobs(const json::value& answer) {
  const json::array* jobs = member(answer, "jobs").if_array();
  if (jobs == nullptr || jobs->empty()) return "no jobs\n";
  std::vector<std::vector<std::string>> rows{
      {"ID", "STATE", "ATTEMPTS", "NEXT", "RECEIVED", "DESTINATION", "KEY", "REASON"}};
  for (const json::value& job : *jobs) {
    const std::string id = text_at(job, "id", 64);
    rows.push_back({id.substr(0, kIdShown), text_at(job, "state", 16), text_at(job, "attempts", 8),
                    time_at(job, "next_attempt"), time_at(job, "received"), text_at(job, "destination", kTextShown),
                    text_at(job, "key", kTextShown),
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
      {"id", text_at(job, "id", 64)},
      {"state", text_at(job, "state", 16)},
      {"destination", text_at(job, "destination", 255)},
      {"key", text_at(job, "key", 255)},
      {"goes to", fmt::format("{} {}", text_at(message, "method", 16), text_at(message, "target", 255))},
      {"attempts", text_at(job, "attempts", 8)},
      {"last", text_at(job, "last", 255)},
      {"why dead", text_at(job, "why_dead", 255)},
      {"received", time_at(job, "received")},
      {"next attempt", time_at(job, "next_attempt")},
      {"ended", time_at(job, "ended")},
      {"remembered until", time_at(job, "remembered_until")},
  });
  if (const json::array* const attempts = member(job, "newest_attempts").if_array();
      attempts != nullptr && !attempts->empty()) {
    std::vector<std::vector<std::string>> rows{{"ATTEMPT", "AT", "GATEWAY", "ANSWER"}};
    for (const json::value& each : *attempts)
      rows.push_back({text_at(each, "attempt", 20), time_at(each, "at"), text_at(each, "gateway", 32),
                      text_at(each, "result", 255)});
    view += "\n" + format_table(rows);
  }
  if (!message.is_object()) return view;
  return view + "\n" + view_of_headers(message) + view_of_body(message);
}

std::string view_of_counted(const json::value& counted) {
  std::vector<std::vector<std::string>> rows{{"JOBS", "DESTINATION"}};
  if (const json::array* const destinations = member(counted, "destinations").if_array()) {
    for (const json::value& each : *destinations)
      rows.push_back({text_at(each, "count", 20), text_at(each, "destination", 255)});
  }
  std::string view = format_table(rows);
  if (const json::array* const skipped = member(counted, "skipped").if_array()) {
    for (const json::value& each : *skipped)
      view += fmt::format("({} are left out: {})\n", text_at(each, "count", 20), text_at(each, "why", 255));
  }
  view += fmt::format("{} jobs{}, spread over {} s\n", text_at(counted, "count", 20),
                      member(counted, "capped") == json::value(true) ? " of more" : "",
                      text_at(counted, "takes_seconds", 20));
  return view;
}

std::string view_of_run(const json::value& run) {
  std::string view =
      fmt::format("{}: {} of {} jobs, {} left alone, {} failed\n", text_at(run, "state", 16), text_at(run, "done", 20),
                  text_at(run, "total", 20), text_at(run, "left_alone", 20), text_at(run, "failed", 20));
  if (const json::array* const left = member(run, "left_alone_why").if_array()) {
    for (const json::value& each : *left)
      view += fmt::format("({}: {})\n", text_at(each, "count", 20), text_at(each, "why", 255));
  }
  if (!member(run, "last_fault").is_null()) view += fmt::format("({})\n", text_at(run, "last_fault", 255));
  return view;
}

std::string view_of_error(const std::string& body) {
  json::error_code error;
  const json::value parsed = json::parse(body, error);
  if (!error && member(parsed, "error").is_string()) return text_at(parsed, "error", 1024);
  return body.empty() ? "no reason was given" : printable(body, 1024);
}

} // namespace oncekey
