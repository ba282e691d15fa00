#include "cli/subcommand.h"

#include "base/crypto.h"
#include "base/durations.h"
#include "base/utf8.h"

#include <oncekey/client.h>

#include <boost/json.hpp>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

namespace oncekey {
namespace {

// Beside kDone, kRefused and kUsage.
constexpr int kGaveUp = 3;
constexpr int kLocalFault = 4;
// Bytes shown of an answer that was not final: enough to see what is wrong.
constexpr std::size_t kShownBytesMax = 4096;

// What "@FILE" and "@-" stand for, or the text itself.
Result<std::string> data_of(const std::string& text) {
  if (!text.starts_with('@')) return text;
  const std::string path = text.substr(1);
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream file(path, std::ios::binary);
  if (!file) return invalid(fmt::format("cannot read {}", path));
  std::string content(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) return invalid(fmt::format("cannot read {}", path));
  return content;
}

Status add_header_line(Headers& headers, std::string_view line) {
  while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0)
    return invalid(fmt::format("header: expected \"Name: value\", got \"{}\"", line));
  std::string_view value = line.substr(colon + 1);
  while (value.starts_with(' ') || value.starts_with('\t')) value.remove_prefix(1);
  headers.add(line.substr(0, colon), value);
  return ok_status();
}

// "Name: value", or "@FILE" with one header in each line: for credentials, which other users of the machine could read
// in the process list.
Status add_headers(Headers& headers, const std::string& text) {
  if (!text.starts_with('@')) return add_header_line(headers, text);
  const auto content = data_of(text);
  if (!content) return content.fault();
  std::istringstream lines(*content);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line == "\r") continue;
    if (Status added = add_header_line(headers, line); !added) return added;
  }
  return ok_status();
}

// As curl users write it, "post" means POST.
std::string in_capitals(std::string method) {
  for (char& c : method) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return method;
}

std::string as_json(const ClientAnswer& answer) {
  boost::json::object object;
  object["ending"] = to_string(answer.ending);
  object["reason"] = answer.reason;
  object["key"] = answer.key;
  object["attempts"] = answer.attempts;
  object["resumed"] = answer.resumed;
  object["ended_before"] = answer.ended_before.has_value();
  object["key_kept"] = answer.key_kept;
  if (answer.response) {
    const ClientResponse& response = *answer.response;
    object["status"] = response.status;
    boost::json::array& headers = object["headers"].emplace_array();
    for (std::size_t i = 0; i < response.headers.size(); ++i)
      headers.push_back({as_utf8(response.headers[i].name), as_utf8(response.headers[i].value)});
    if (is_utf8(response.body)) {
      object["body"] = response.body;
    } else {
      object["body_base64"] = base64_encode(response.body);
    }
  }
  return boost::json::serialize(object) + "\n";
}

class SendCommand final : public Subcommand {
 public:
  explicit SendCommand(CLI::App& app) : Subcommand(app, "send", "Send a request and retry it safely, under one key") {
    add_options();
    command_->footer(
        "Exit codes: 0 succeeded, 1 refused for good, 2 wrong usage, 3 gave up without a final answer,\n"
        "4 the journal or the output failed. See docs/CLIENT.md.");
  }

  int run(const Console& console) const override {
    if (options_.journal.empty() && (forget_ || request_.again || !request_.operation.empty()))
      return complain(console, "--operation, --again and --forget need a journal: add --journal FILE");
    if (request_.again && request_.operation.empty())
      return complain(console, "--again is for a named operation: add --operation NAME");
    const auto wanted = request();
    if (!wanted) return complain(console, wanted.fault(), kLocalFault);
    // Before anything is sent: an answer that cannot be written would be lost. The file keeps its content until then.
    if (!output_.empty() && !std::ofstream(output_, std::ios::binary | std::ios::app))
      return complain(console, fmt::format("cannot write to {}; nothing was sent", output_), kLocalFault);
    auto chosen = options(console);
    if (!chosen) return complain(console, chosen.fault(), kLocalFault);
    const auto client = Client::open(*std::move(chosen));
    if (!client) return complain(console, client.fault(), kLocalFault);
    if (forget_) {
      if (const auto forgotten = (*client)->forget(*wanted); !forgotten)
        return complain(console, forgotten.fault(), kLocalFault);
    }
    // The answer is written before the operation ends in the journal: see Client::Receive.
    const auto answer =
        (*client)->send(*wanted, [&](const ClientAnswer& received) { return deliver(received, console); });
    return answer ? report(*answer, console) : complain(console, answer.fault(), kLocalFault);
  }

 private:
  void add_options() {
    command_->add_option("METHOD", request_.method, "POST, PATCH, DELETE, ...")->required();
    command_->add_option("URL", request_.url, "http or https")->required();
    option("-H,--header", headers_, "HEADER", "\"Name: value\", or @FILE with one per line; may be repeated")
        ->expected(1)
        ->take_all();
    CLI::Option* const body = option("-d,--data", data_, "DATA", "the body, or @FILE, or @- for standard input");
    option("--json", json_, "DATA", "the same, with Content-Type: application/json")->excludes(body);
    command_->add_option("--key", request_.key, "your own idempotency key (default: a random UUID)");
    option("--operation", request_.operation, "NAME",
           "a name for what must happen once: the same name sends\n"
           "the same key, also after the answer, for --key-lifetime\n"
           "(default: the request is the name, until its answer)");
    option("--journal", options_.journal, "FILE", "keep the keys of operations in this file");
    command_->add_flag("--again", request_.again, "a new key for an --operation that has ended: do it once more");
    command_->add_flag("--forget", forget_,
                       "drop the key that an earlier run left in the journal, and\n"
                       "start over: for when you know what became of it");
    const auto with_default = [&](const char* name, auto& value, const char* help) {
      return command_->add_option(name, value, help)->capture_default_str();
    };
    with_default("--key-lifetime", key_lifetime_,
                 "how long the server remembers keys; an --operation\nstays ended for as long");
    with_default("--key-header", options_.key_header, "the header that carries the key");
    command_->add_flag("--quote-key", quote_key_, "send the key in double quotes, as in the IETF draft");
    with_default("--max-attempts", options_.retry.max_attempts, "number of tries")->check(CLI::Range(1, 1000));
    with_default("--deadline", deadline_, "time limit for all tries together");
    with_default("--timeout", timeout_, "time limit for one try");
    with_default("--retry-budget", options_.budget.reserve,
                 "retries per minute, shared by all runs with this\n"
                 "journal; every ten calls add one");
    option("--cacert", options_.ca_file, "FILE", "PEM certificates to trust (default: the system's)");
    command_->add_flag("-i,--include", include_head_, "print the answer's status and headers, too");
    command_->add_flag("--report-json", report_json_,
                       "print one JSON object instead of the body: ending, status,\n"
                       "headers, body, key, attempts; also after giving up");
    option("-o,--output", output_, "FILE", "write the answer's body to this file");
    command_->add_flag("-q,--quiet", quiet_, "no messages about retries");
  }

  Result<ClientRequest> request() const {
    ClientRequest request = request_;
    request.method = in_capitals(request.method);
    for (const std::string& header : headers_) {
      if (const Status added = add_headers(request.headers, header); !added) return added.fault();
    }
    const bool as_json = !json_.empty();
    auto body = data_of(as_json ? json_ : data_);
    if (!body) return body.fault();
    request.body = *std::move(body);
    if (!request.body.empty() && !request.headers.has("Content-Type"))
      request.headers.add("Content-Type", as_json ? "application/json" : "application/x-www-form-urlencoded");
    return request;
  }

  Result<ClientOptions> options(const Console& console) const {
    ClientOptions options = options_;
    for (const auto& [text, into] : {std::pair(&deadline_, &options.retry.deadline),
                                     {&timeout_, &options.retry.timeout},
                                     {&key_lifetime_, &options.key_lifetime}}) {
      const auto duration = parse_duration(*text);
      if (!duration) return duration.fault();
      *into = *duration;
    }
    options.key_spelling = quote_key_ ? KeySpelling::quoted : KeySpelling::bare;
    if (!quiet_) {
      std::ostream& err = console.err;
      options.on_retry = [&err](const RetryNotice& notice) {
        err << fmt::format("oncekey send: try {}: {}; again in {}\n", notice.attempt, notice.reason,
                           format_duration(notice.wait))
            << std::flush;
      };
    }
    return options;
  }

  void print(std::ostream& out, const ClientAnswer& answer) const {
    if (report_json_) {
      out << as_json(answer) << std::flush;
      return;
    }
    const ClientResponse& response = *answer.response;
    if (include_head_) {
      out << "HTTP/1.1 " << response.status << (response.reason.empty() ? "" : " ") << response.reason << "\r\n"
          << response.headers.lines() << "\r\n";
    }
    out << response.body << std::flush;
  }

  Status deliver(const ClientAnswer& answer, const Console& console) const {
    const auto failed = [&](std::string_view where) {
      return Status(unavailable(fmt::format("the answer was {}, but it cannot be written to {}; repair that and {}",
                                            answer.response->status, where, how_to_go_on(answer))));
    };
    if (output_.empty()) {
      print(console.out, answer);
      return console.out ? ok_status() : failed("standard output");
    }
    std::ofstream file(output_, std::ios::binary | std::ios::trunc);
    if (file) print(file, answer);
    file.close();
    return file ? ok_status() : failed(output_);
  }

  std::string how_to_go_on(const ClientAnswer& answer) const {
    if (answer.key.empty()) return "run the same command again";
    if (!options_.journal.empty()) return "run the same command again: it goes on under the same key";
    return fmt::format("run the same command again with --key {}", answer.key);
  }

  int report(const ClientAnswer& answer, const Console& console) const {
    if (answer.ended_before && answer.ending == Ending::succeeded && !quiet_) {
      complain(console, fmt::format("this operation had its answer at {:%Y-%m-%d %H:%M:%S} UTC already; its key was "
                                    "sent again (--again makes a new one)",
                                    std::chrono::floor<std::chrono::seconds>(*answer.ended_before)));
    }
    switch (answer.ending) {
      case Ending::succeeded:
        return kDone;
      case Ending::refused:
        complain(console, "refused: " + answer.reason);
        if (answer.key_kept)
          complain(console, "an earlier try may have been done all the same; " + how_to_go_on(answer));
        return kRefused;
      case Ending::gave_up:
        break;
    }
    if (report_json_) print(console.out, answer);
    complain(console, "gave up: " + answer.reason);
    complain(console, how_to_go_on(answer));
    if (!report_json_ && answer.response && !answer.response->body.empty()) {
      const std::string& body = answer.response->body;
      complain(console, "the last answer said:\n" + body.substr(0, kShownBytesMax));
      if (body.size() > kShownBytesMax)
        console.err << fmt::format("(the first {} of {} bytes)\n", kShownBytesMax, body.size());
    }
    return kGaveUp;
  }

  // What the options say, as far as it needs no further reading.
  ClientRequest request_;
  ClientOptions options_;
  std::vector<std::string> headers_;
  std::string data_;
  std::string json_;
  bool forget_ = false;
  bool report_json_ = false;
  bool include_head_ = false;
  bool quiet_ = false;
  bool quote_key_ = false;
  std::string output_;
  std::string deadline_ = format_duration(RetryRules().deadline);
  std::string timeout_ = format_duration(RetryRules().timeout);
  std::string key_lifetime_ = format_duration(ClientOptions().key_lifetime);
};

} // namespace

std::unique_ptr<Subcommand> send_command(CLI::App& app) { return std::make_unique<SendCommand>(app); }

} // namespace oncekey
