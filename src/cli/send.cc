#include "cli/send.h"

#include "base/durations.h"

#include <oncekey/client.h>

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
  if (colon == std::string_view::npos || colon == 0) return invalid("a header is not of the form \"Name: value\"");
  std::string_view value = line.substr(colon + 1);
  while (value.starts_with(' ') || value.starts_with('\t')) value.remove_prefix(1);
  headers.add(line.substr(0, colon), value);
  return ok_status();
}

// A line of its own, or "@FILE" with one header a line: for credentials, which other users of the machine could read
// off the command line.
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
  bool forget = false;
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
  Status deliver(const ClientAnswer& answer, const Console& console) const;
  std::string how_to_go_on(const ClientAnswer& answer) const;
  int report(const ClientAnswer& answer, const Console& console) const;
  int complain(const Fault& fault, const Console& console) const;
};

void SendCommand::Impl::add_options() {
  send->add_option("METHOD", method, "POST, PATCH, DELETE, ...")->required();
  send->add_option("URL", url, "http or https")->required();
  send->add_option("-H,--header", headers, "\"Name: value\", or @FILE with one a line; may be repeated")
      ->type_name("HEADER")
      ->expected(1)
      ->take_all();
  CLI::Option* body =
      send->add_option("-d,--data", data, "the body, or @FILE, or @- for standard input")->type_name("DATA");
  send->add_option("--json", json, "the same, with Content-Type: application/json")->type_name("DATA")->excludes(body);
  send->add_option("--key", key, "your own idempotency key (default: a random UUID)");
  send->add_option("--operation", operation,
                   "a name for what is to be done once, under which\n"
                   "the journal finds its key again (default: the request)")
      ->type_name("NAME");
  send->add_option("--journal", journal, "keep the key in this file until the answer is final")->type_name("FILE");
  send->add_flag("--forget", forget, "drop the key an earlier run left in the journal, and begin anew");
  send->add_option("--key-lifetime", key_lifetime, "how long the server remembers keys")->capture_default_str();
  send->add_option("--key-header", key_header, "the header that carries the key")->capture_default_str();
  send->add_flag("--quote-key", quote_key, "send the key in quotes, as the IETF draft has it");
  send->add_option("--max-attempts", max_attempts, "tries in all")->capture_default_str()->check(CLI::Range(1, 1000));
  send->add_option("--deadline", deadline, "for all tries together")->capture_default_str();
  send->add_option("--timeout", timeout, "for one try")->capture_default_str();
  send->add_option("--retry-budget", retry_budget,
                   "retries a minute, of all runs that share the journal,\n"
                   "besides one for every ten calls")
      ->capture_default_str();
  send->add_option("--cacert", ca_file, "PEM certificates to trust (default: the system's)")->type_name("FILE");
  send->add_flag("-i,--include", include_head, "print the answer's status and headers, too");
  send->add_option("-o,--output", output, "write the answer's body to this file")->type_name("FILE");
  send->add_flag("-q,--quiet", quiet, "say nothing about retries");
}

Result<ClientRequest> SendCommand::Impl::request() const {
  ClientRequest request;
  request.method = method;
  request.url = url;
  request.key = key;
  request.operation = operation;
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

Status SendCommand::Impl::deliver(const ClientAnswer& answer, const Console& console) const {
  const auto failed = [&](std::string_view where) {
    return Status(unavailable(fmt::format("the answer was {}, and cannot be written to {}; mend that, and {}",
                                          answer.response->status, where, how_to_go_on(answer))));
  };
  if (output.empty()) {
    print_answer(console.out, *answer.response, include_head);
    return console.out ? ok_status() : failed("standard output");
  }
  std::ofstream file(output, std::ios::binary | std::ios::trunc);
  if (file) print_answer(file, *answer.response, include_head);
  file.close();
  return file ? ok_status() : failed(output);
}

std::string SendCommand::Impl::how_to_go_on(const ClientAnswer& answer) const {
  if (answer.key.empty()) return "run the same command again";
  if (!journal.empty()) return "run the same command again: it goes on under the same key";
  return fmt::format("run the same command again with --key {}", answer.key);
}

int SendCommand::Impl::report(const ClientAnswer& answer, const Console& console) const {
  switch (answer.ending) {
    case Ending::succeeded:
      return kSucceeded;
    case Ending::refused:
      console.err << "oncekey send: refused: " << answer.reason << "\n";
      if (answer.key_kept)
        console.err << "oncekey send: an earlier try may have been done all the same; " << how_to_go_on(answer) << "\n";
      return kRefusedForGood;
    case Ending::gave_up:
      console.err << "oncekey send: gave up: " << answer.reason << "\noncekey send: " << how_to_go_on(answer) << "\n";
      return kGaveUp;
  }
  return kGaveUp;
}

int SendCommand::Impl::complain(const Fault& fault, const Console& console) const {
  console.err << "oncekey send: " << fault.message << "\n";
  if (fault.kind == FaultKind::conflict) console.err << "oncekey send: --forget does so, and begins anew\n";
  return fault.kind == FaultKind::invalid ? kWrongUsage : kLocalFault;
}

int SendCommand::Impl::run(const Console& console) const {
  if (journal.empty() && (forget || !operation.empty()))
    return complain(invalid("--operation and --forget are about a journal: name it with --journal FILE"), console);
  const auto wanted = request();
  if (!wanted) return complain(wanted.fault(), console);
  // Now, and not with an answer in hand that nobody gets to see. What is in the file stays until there is one.
  if (!output.empty() && !std::ofstream(output, std::ios::binary | std::ios::app))
    return complain(unavailable(fmt::format("cannot write to {}; nothing was sent", output)), console);
  auto chosen = options(console);
  if (!chosen) return complain(chosen.fault(), console);
  const auto client = Client::open(*std::move(chosen));
  if (!client) return complain(client.fault(), console);
  if (forget) {
    if (const auto forgotten = (*client)->forget(*wanted); !forgotten) return complain(forgotten.fault(), console);
  }
  // The answer is out before the key is let go: see Client::Receive.
  const auto answer =
      (*client)->send(*wanted, [&](const ClientAnswer& received) { return deliver(received, console); });
  return answer ? report(*answer, console) : complain(answer.fault(), console);
}

SendCommand::SendCommand(CLI::App& app) : impl_(std::make_unique<Impl>()) {
  impl_->send = app.add_subcommand("send", "Make a call that is retried safely, under one key");
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
