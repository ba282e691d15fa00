#include "cli/send.h"

#include "base/crypto.h"
#include "base/durations.h"
#include "base/utf8.h"

#include <oncekey/client.h>

#include <boost/json.hpp>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <iterator>

namespace oncekey {
namespace {

constexpr int kSucceeded = 0;
constexpr int kRefusedForGood = 1;
constexpr int kWrongUsage = 2;
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
  std::string_view rest = *content;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
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
    boost::json::array headers;
    for (std::size_t i = 0; i < response.headers.size(); ++i) {
      headers.push_back({as_utf8(response.headers[i].name), as_utf8(response.headers[i].value)});
    }
    object["headers"] = std::move(headers);
    if (is_utf8(response.body)) {
      object["body"] = response.body;
    } else {
      object["body_base64"] = base64_encode(response.body);
    }
  }
  return boost::json::serialize(object) + "\n";
}

void print_answer(std::ostream& out, const ClientResponse& response, bool with_head) {
  if (with_head) {
    out << "HTTP/1.1 " << response.status << (response.reason.empty() ? "" : " ") << response.reason << "\r\n"
        << response.headers.lines() << "\r\n";
  }
  out << response.body << std::flush;
}

} // namespace

struct SendCommand::Impl {
  CLI::App* send = nullptr;
  std::string method;
  std::string url;
  std::vector<std::string> headers;
  std::string data;
  std::string json;
  std::string key;
  std::string operation;
  std::string journal;
  bool again = false;
  bool forget = false;
  bool report_json = false;
  bool include_head = false;
  bool quiet = false;
  bool quote_key = false;
  std::string output;
  std::uint32_t max_attempts = RetryRules().max_attempts;
  std::uint32_t retry_budget = BudgetRules().reserve;
  std::string deadline = format_duration(RetryRules().deadline);
  std::string timeout = format_duration(RetryRules().timeout);
  std::string key_lifetime = format_duration(ClientOptions().key_lifetime);
  std::string key_header = ClientOptions().key_header;
  std::string ca_file;

  void add_options();
  Result<ClientRequest> request() const;
  Result<ClientOptions> options(const Console& console) const;
  int run(const Console& console) const;
  void print(std::ostream& out, const ClientAnswer& answer) const;
  Status deliver(const ClientAnswer& answer, const Console& console) const;
  std::string how_to_go_on(const ClientAnswer& answer) const;
  int report(const ClientAnswer& answer, const Console& console) const;
  int complain(const Fault& fault, const Console& console) const;
};

void SendCommand::Impl::add_options() {
  send->add_option("METHOD", method, "POST, PATCH, DELETE, ...")->required();
  send->add_option("URL", url, "http or https")->required();
  send->add_option("-H,--header", headers, "\"Name: value\", or @FILE with one per line; may be repeated")
      ->type_name("HEADER")
      ->expected(1)
      ->take_all();
  CLI::Option* body =
      send->add_option("-d,--data", data, "the body, or @FILE, or @- for standard input")->type_name("DATA");
  send->add_option("--json", json, "the same, with Content-Type: application/json")->type_name("DATA")->excludes(body);
  send->add_option("--key", key, "your own idempotency key (default: a random UUID)");
  send->add_option("--operation", operation,
                   "a name for what must happen once: the same name sends\n"
                   "the same key, also after the answer, for --key-lifetime\n"
                   "(default: the request is the name, until its answer)")
      ->type_name("NAME");
  send->add_option("--journal", journal, "keep the keys of operations in this file")->type_name("FILE");
  send->add_flag("--again", again, "a new key for an --operation that has ended: do it once more");
  send->add_flag("--forget", forget,
                 "drop the key that an earlier run left in the journal, and\n"
                 "start over: for when you know what became of it");
  send->add_option("--key-lifetime", key_lifetime,
                   "how long the server remembers keys; an --operation\nstays ended for as long")
      ->capture_default_str();
  send->add_option("--key-header", key_header, "the header that carries the key")->capture_default_str();
  send->add_flag("--quote-key", quote_key, "send the key in double quotes, as in the IETF draft");
  send->add_option("--max-attempts", max_attempts, "number of tries")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  send->add_option("--deadline", deadline, "time limit for all tries together")->capture_default_str();
  send->add_option("--timeout", timeout, "time limit for one try")->capture_default_str();
  send->add_option("--retry-budget", retry_budget,
                   "retries per minute, shared by all runs with this\n"
                   "journal; every ten calls add one")
      ->capture_default_str();
  send->add_option("--cacert", ca_file, "PEM certificates to trust (default: the system's)")->type_name("FILE");
  send->add_flag("-i,--include", include_head, "print the answer's status and headers, too");
  send->add_flag("--report-json", report_json,
                 "print one JSON object instead of the body: ending, status,\n"
                 "headers, body, key, attempts; also after giving up");
  send->add_option("-o,--output", output, "write the answer's body to this file")->type_name("FILE");
  send->add_flag("-q,--quiet", quiet, "no messages about retries");
}

Result<ClientRequest> SendCommand::Impl::request() const {
  ClientRequest request;
  request.method = in_capitals(method);
  request.url = url;
  request.key = key;
  request.operation = operation;
  request.again = again;
  for (const std::string& header : headers) {
    if (const Status added = add_headers(request.headers, header); !added) return added.fault();
  }
  const bool as_json = !json.empty();
  auto body = data_of(as_json ? json : data);
  if (!body) return body.fault();
  request.body = *std::move(body);
  if (!request.body.empty() && !request.headers.has("Content-Type"))
    request.headers.add("Content-Type", as_json ? "application/json" : "application/x-www-form-urlencoded");
  return request;
}

Result<ClientOptions> SendCommand::Impl::options(const Console& console) const {
  ClientOptions options;
  for (const auto& [text, into] : {std::pair(&deadline, &options.retry.deadline),
                                   {&timeout, &options.retry.timeout},
                                   {&key_lifetime, &options.key_lifetime}}) {
    const auto duration = parse_duration(*text);
    if (!duration) return duration.fault();
    *into = *duration;
  }
  options.retry.max_attempts = max_attempts;
  options.budget.reserve = retry_budget;
  options.journal = journal;
  options.key_header = key_header;
  options.key_spelling = quote_key ? KeySpelling::quoted : KeySpelling::bare;
  options.ca_file = ca_file;
  if (!quiet) {
    std::ostream& err = console.err;
    options.on_retry = [&err](const RetryNotice& notice) {
      err << fmt::format("oncekey send: try {}: {}; again in {}\n", notice.attempt, notice.reason,
                         format_duration(notice.wait))
          << std::flush;
    };
  }
  return options;
}

void SendCommand::Impl::print(std::ostream& out, const ClientAnswer& answer) const {
  if (report_json) {
    out << as_json(answer) << std::flush;
  } else {
    print_answer(out, *answer.response, include_head);
  }
}

Status SendCommand::Impl::deliver(const ClientAnswer& answer, const Console& console) const {
  const auto failed = [&](std::string_view where) {
    return Status(unavailable(fmt::format("the answer was {}, but it cannot be written to {}; repair that and {}",
                                          answer.response->status, where, how_to_go_on(answer))));
  };
  if (output.empty()) {
    print(console.out, answer);
    return console.out ? ok_status() : failed("standard output");
  }
  std::ofstream file(output, std::ios::binary | std::ios::trunc);
  if (file) print(file, answer);
  file.close();
  return file ? ok_status() : failed(output);
}

std::string SendCommand::Impl::how_to_go_on(const ClientAnswer& answer) const {
  if (answer.key.empty()) return "run the same command again";
  if (!journal.empty()) return "run the same command again: it goes on under the same key";
  return fmt::format("run the same command again with --key {}", answer.key);
}

int SendCommand::Impl::report(const ClientAnswer& answer, const Console& console) const {
  if (answer.ended_before && answer.ending == Ending::succeeded && !quiet) {
    console.err << fmt::format(
        "oncekey send: this operation had its answer at {:%Y-%m-%d %H:%M:%S} UTC already; its key was sent again "
        "(--again makes a new one)\n",
        std::chrono::floor<std::chrono::seconds>(*answer.ended_before));
  }
  switch (answer.ending) {
    case Ending::succeeded:
      return kSucceeded;
    case Ending::refused:
      console.err << "oncekey send: refused: " << answer.reason << "\n";
      if (answer.key_kept)
        console.err << "oncekey send: an earlier try may have been done all the same; " << how_to_go_on(answer) << "\n";
      return kRefusedForGood;
    case Ending::gave_up:
      if (report_json) print(console.out, answer);
      console.err << "oncekey send: gave up: " << answer.reason << "\noncekey send: " << how_to_go_on(answer) << "\n";
      if (!report_json && answer.response && !answer.response->body.empty()) {
        const std::string& body = answer.response->body;
        console.err << "oncekey send: the last answer said:\n" << body.substr(0, kShownBytesMax) << "\n";
        if (body.size() > kShownBytesMax)
          console.err << fmt::format("(the first {} of {} bytes)\n", kShownBytesMax, body.size());
      }
      return kGaveUp;
  }
  return kGaveUp;
}

int SendCommand::Impl::complain(const Fault& fault, const Console& console) const {
  console.err << "oncekey send: " << fault.message << "\n";
  return fault.kind == FaultKind::invalid ? kWrongUsage : kLocalFault;
}

int SendCommand::Impl::run(const Console& console) const {
  if (journal.empty() && (forget || again || !operation.empty()))
    return complain(invalid("--operation, --again and --forget need a journal: add --journal FILE"), console);
  if (again && operation.empty())
    return complain(invalid("--again is for a named operation: add --operation NAME"), console);
  const auto wanted = request();
  if (!wanted) return complain(wanted.fault(), console);
  // Before anything is sent: an answer that cannot be written would be lost. The file keeps its content until then.
  if (!output.empty() && !std::ofstream(output, std::ios::binary | std::ios::app))
    return complain(unavailable(fmt::format("cannot write to {}; nothing was sent", output)), console);
  auto chosen = options(console);
  if (!chosen) return complain(chosen.fault(), console);
  const auto client = Client::open(*std::move(chosen));
  if (!client) return complain(client.fault(), console);
  if (forget) {
    if (const auto forgotten = (*client)->forget(*wanted); !forgotten) return complain(forgotten.fault(), console);
  }
  // The answer is written before the operation ends in the journal: see Client::Receive.
  const auto answer =
      (*client)->send(*wanted, [&](const ClientAnswer& received) { return deliver(received, console); });
  return answer ? report(*answer, console) : complain(answer.fault(), console);
}

SendCommand::SendCommand(CLI::App& app) : impl_(std::make_unique<Impl>()) {
  impl_->send = app.add_subcommand("send", "Send a request and retry it safely, under one key");
  impl_->add_options();
  impl_->send->footer(
      "Exit codes: 0 succeeded, 1 refused for good, 2 wrong usage, 3 gave up without a final answer,\n"
      "4 the journal or the output failed. See docs/CLIENT.md.");
}

SendCommand::~SendCommand() = default;

bool SendCommand::chosen() const { return impl_->send->parsed(); }

int SendCommand::run() const { return run(Console{std::cout, std::cerr, nullptr}); }

int SendCommand::run(const Console& console) const { return impl_->run(console); }

} // namespace oncekey
