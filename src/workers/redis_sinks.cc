#include <oncekey/sinks.h>

#include "base/json_text.h"
#include "redis/connection.h"

#include <fmt/format.h>
#include <boost/json/parse.hpp>

#include <algorithm>

namespace oncekey {
namespace {

// Commands are written before answers are read: what is under way at a time stays within the sockets' buffers.
constexpr std::size_t kRedisBatch = 100;

// The args keep their bytes: a number that JSON libraries would round is not touched.
std::string sidekiq_args(const std::string& args) {
  boost::system::error_code error;
  const boost::json::value parsed = boost::json::parse(args, error);
  if (!error) return parsed.is_array() ? args : fmt::format("[{}]", args);
  std::string text = "[";
  append_json_string(text, args);
  return text + "]";
}

double seconds_of(Time time) { return static_cast<double>(time.time_since_epoch().count()) / 1000.0; }

std::string sidekiq_payload(const Job& job, const std::string& queue) {
  const auto now = std::chrono::time_point_cast<Millis>(std::chrono::system_clock::now());
  std::string json = "{\"class\":";
  append_json_string(json, job.name);
  json += fmt::format(",\"args\":{},\"queue\":", sidekiq_args(job.args));
  append_json_string(json, queue);
  json += fmt::format(",\"jid\":\"{:024x}\",\"created_at\":{:.3f},\"enqueued_at\":{:.3f},\"retry\":true}}", job.id,
                      seconds_of(job.staged_at), seconds_of(now));
  return json;
}

// Errors about one command rather than about the server, its memory, its disk, its role or our right to use it. The
// server's own are many, and new ones come; these are few.
bool is_about_the_command(std::string_view error) {
  constexpr std::string_view kAboutOne[] = {"WRONGTYPE ",          "ERR wrong number of arguments",
                                            "ERR syntax error",    "ERR string exceeds maximum allowed size",
                                            "ERR value is",        "ERR Protocol error",
                                            "ERR invalid",         "ERR Invalid",
                                            "ERR The ID specified"};
  return std::any_of(std::begin(kAboutOne), std::end(kAboutOne),
                     [&](std::string_view start) { return error.starts_with(start); });
}

using RedisPtr = std::unique_ptr<redis::BlockingClient>;

// One command a job, sent in groups, with the same commands in front of each group.
class RedisSink final : public Sink {
 public:
  using CommandOf = std::function<std::string(const Job&)>;
  RedisSink(RedisPtr redis, CommandOf command_of, std::vector<std::string> before_each_group = {})
      : redis_(std::move(redis)),
        command_of_(std::move(command_of)),
        before_each_group_(std::move(before_each_group)) {}

  SinkReport deliver(std::span<const Job> jobs, const DeliveryTurn& turn) override {
    SinkReport report;
    while (!jobs.empty() && !report.down && !turn.over()) {
      const auto group = jobs.first(std::min(jobs.size(), kRedisBatch));
      jobs = jobs.subspan(group.size());
      hand_over(group, report);
    }
    return report;
  }

 private:
  void hand_over(std::span<const Job> group, SinkReport& report) {
    std::vector<std::string> commands = before_each_group_;
    const std::size_t first = commands.size();
    for (const Job& job : group) commands.push_back(command_of_(job));
    const std::vector<Result<redis::OwnedReply>> answers = redis_->run(commands);
    for (std::size_t i = 0; i < group.size(); ++i) {
      const Result<redis::OwnedReply>& answer = answers[first + i];
      const std::string_view error = !answer                     ? answer.fault().message
                                     : answer->look().is_error() ? answer->look().text()
                                                                 : std::string_view{};
      if (error.empty()) {
        report.accepted.push_back(group[i].id);
      } else if (answer && is_about_the_command(error)) {
        report.refused.push_back({group[i].id, std::string(error)});
      } else if (!report.down) {
        report.down = error; // the first one tells most: after it the server may close the connection
      }
    }
    if (report.down) redis_->disconnect();
  }

  const RedisPtr redis_;
  const CommandOf command_of_;
  const std::vector<std::string> before_each_group_;
};

Result<RedisPtr> client_for(std::string_view redis_url, std::string_view no_cluster, const RedisSinkOptions& options) {
  Result<redis::RedisUrl> url = redis::parse_url(redis_url);
  if (!url) return std::move(url).fault();
  if (url->cluster && !no_cluster.empty()) return invalid(std::string(no_cluster));
  if (url->wait != 0 || url->prefix != redis::RedisUrl{}.prefix)
    return invalid("wait and prefix in a Redis URL are for stores; a sink has neither");
  return redis::BlockingClient::make(*std::move(url), options.timeout);
}

} // namespace

Result<std::unique_ptr<Sink>> sidekiq_sink(std::string_view redis_url, std::string queue, RedisSinkOptions options) {
  if (queue.empty()) return invalid("a Sidekiq queue has a name");
  Result<RedisPtr> redis =
      client_for(redis_url, "Sidekiq does not use a Redis Cluster: write redis:// or rediss:// in the URL", options);
  if (!redis) return std::move(redis).fault();
  std::vector<std::string> name_queue{redis::command({"SADD", "queues", queue})};
  return std::unique_ptr<Sink>(std::make_unique<RedisSink>(
      *std::move(redis),
      [queue = std::move(queue)](const Job& job) {
        return redis::command({"LPUSH", "queue:" + queue, sidekiq_payload(job, queue)});
      },
      std::move(name_queue)));
}

Result<std::unique_ptr<Sink>> redis_stream_sink(std::string_view redis_url, std::string stream,
                                                RedisSinkOptions options) {
  if (stream.empty()) return invalid("a Redis stream has a name");
  Result<RedisPtr> redis = client_for(redis_url, "", options);
  if (!redis) return std::move(redis).fault();
  return std::unique_ptr<Sink>(std::make_unique<RedisSink>(*std::move(redis), [stream =
                                                                                   std::move(stream)](const Job& job) {
    return redis::command({"XADD", stream, "*", "id", fmt::format("{}", job.id), "name", job.name, "args", job.args});
  }));
}

} // namespace oncekey
