#include "base/utf8.h"
#include "cli/admin_talk.h"
#include "cli/views.h"

#include <fmt/format.h>

namespace oncekey {
namespace {

// "ready", or "not ready: draining".
std::string status_line(const boost::json::value& answer) {
  const auto text = [&](const char* name) {
    const boost::json::value& value = member(answer, name);
    return value.is_string() ? std::string(value.as_string()) : std::string();
  };
  const std::string reason = text("reason");
  return reason.empty() ? text("status") : fmt::format("{}: {}", text("status"), reason);
}

class HealthCommand final : public Subcommand {
 public:
  explicit HealthCommand(CLI::App& app)
      : Subcommand(app, "health", "Ask a running gateway whether it is ready, for health checks") {
    command_->add_flag("--live", live_, "ask only whether the process is alive (/livez instead of /readyz)");
    option("--admin", admin_, "HOST:PORT",
           "the gateway's admin listener (default: that of --config, or 127.0.0.1:8081)");
    option("--admin-ca", admin_ca_, "FILE", "PEM certificates to trust for https (default: the system's)");
    option("--config", config_, "FILE", "the gateway's configuration file: where its admin listener is");
  }

  int run(const Console& console) const override {
    const Result<AdminClient> client = anonymous_admin_client(admin_, admin_ca_, config_);
    if (!client) return complain(console, client.fault(), kUsage);
    const Result<AdminAnswer> answer = client->get(live_ ? "/livez" : "/readyz");
    if (!answer) return complain(console, answer.fault().message, kUnreachable);
    boost::json::error_code error;
    const boost::json::value body = boost::json::parse(answer->body, error);
    if (error)
      return complain(console, "what answered is not an Oncekey admin listener: its answer is not JSON", kUnreachable);
    console.out << as_utf8(status_line(body)) << "\n";
    return answer->status == 200 ? kDone : kRefused;
  }

 private:
  bool live_ = false;
  std::string admin_;
  std::string admin_ca_;
  std::string config_;
};

} // namespace

std::unique_ptr<Subcommand> health_command(CLI::App& app) { return std::make_unique<HealthCommand>(app); }

} // namespace oncekey
