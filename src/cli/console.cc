// The way to the console in a browser.
#include "cli/admin_talk.h"
#include "cli/views.h"

#include <fmt/format.h>

namespace oncekey {
namespace {

namespace json = boost::json;

class ConsoleCommand final : public AdminCommand {
 public:
  explicit ConsoleCommand(CLI::App& app)
      : AdminCommand(app, "console", "Print a link that opens the console of a running gateway in a browser") {
    command_->add_flag("--read-only", read_only_, "the link shows everything but bodies, and cannot act");
  }

  int run(const Console& console) const override {
    const auto gateway = client();
    if (!gateway) return complain(console, gateway.fault().message);
    json::object request;
    if (read_only_) request["role"] = "read";
    int exit_code = kDone;
    const auto made = parsed(gateway->post("/api/login/codes", json::serialize(request)), console, exit_code);
    if (!made) return exit_code;
    // In the fragment, which browsers send to no server: the code is in no log.
    const std::string link = fmt::format("{}/console/#code={}", gateway->origin(), text_of_member(*made, "code"));
    if (as_json()) {
      json::object shown = made->is_object() ? made->get_object() : json::object{};
      shown.erase("code");
      shown["url"] = link;
      console.out << json::serialize(shown) << "\n";
      return kDone;
    }
    console.out << link << "\n";
    console.err << fmt::format("The link logs one browser in, once, as {}. It is good for {} seconds.\n",
                               text_of_member(*made, "role") == "read" ? "a reader" : "an operator",
                               text_of_member(*made, "expires_in_seconds"));
    return kDone;
  }

 private:
  bool read_only_ = false;
};

} // namespace

std::unique_ptr<Subcommand> console_command(CLI::App& app) { return std::make_unique<ConsoleCommand>(app); }

} // namespace oncekey
