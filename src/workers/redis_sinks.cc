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

enum class JsonShape { array, other, none };

JsonShape shape_of(std::string_view text) {
  boost::system::error_code error;
  const boost::json::value parsed = boost::json::parse(text, error);
  if (error) return JsonShape::none;
  return parsed.is_array() ? JsonShape::array : JsonShape::other;
}

// The args keep their bytes: a number that JSON libraries would round is not touched.
std::string sidekiq_args(const std::string& args) {
  switch (shape_of(args)) {
    case JsonShape::array:
      return args;
    case JsonShape::other:
      return fmt::format("[{}]", args);
    case JsonShape::none:
      break;
  }
  std::string text = "[";
  append_json_string(text, args);
  text.push_back(']');
  return text;
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

// What both have in common: one command a job, sent in groups.
class RedisSink : public Sink {
 public:
  explicit RedisSink(RedisPtr redis) : redis_(std::move(redis)) {}

  SinkReport deliver(std::span<const Job> jobs, const DeliveryTurn& turn) override {
    SinkReport report;
    while (!jobs.empty() && !report.down && !turn.over()) {
      const auto group = jobs.first(std::min(jobs.size(), kRedisBatch));
      jobs = jobs.subspan(group.size());
      hand_over(group, report);
    }
    return report;
  }

 protected:
  virtual std::vector<std::string> before_each_group() const { return {}; }
  virtual std::string command_of(const Job& job) const = 0;

 private:
  void hand_over(std::span<const Job> group, SinkReport& report) {
    std::vector<std::string> commands = before_each_group();
    const std::size_t first = commands.size();
    for (const Job& job : group) commands.push_back(command_of(job));
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
};

class SidekiqSink final : public RedisSink {
 public:
  SidekiqSink(RedisPtr redis, std::string queue) : RedisSink(std::move(redis)), queue_(std::move(queue)) {}

 protected:
  std::vector<std::string> before_each_group() const override { return {redis::command({"SADD", "queues", queue_})}; }
  std::string command_of(const Job& job) const override {
    return redis::command({"LPUSH", "queue:" + queue_, sidekiq_payload(job, queue_)});
  }

 private:
  const std::string queue_;
};

class RedisStreamSink final : public RedisSink {
 public:
  RedisStreamSink(RedisPtr redis, std::string stream) : RedisSink(std::move(redis)), stream_(std::move(stream)) {}

 protected:
  std::string command_of(const Job& job) const override {
    return redis::command({"XADD", stream_, "*", "id", fmt::format("{}", job.id), "name", job.name, "args", job.args});
  }

 private:
  const std::string stream_;
};

Result<RedisPtr> client_for(redis::RedisUrl url, const RedisSinkOptions& options) {
  if (url.wait != 0 || url.prefix != redis::RedisUrl{}.prefix) {
    return invalid("wait and prefix in a Redis URL are for stores; a sink has neither");
  }
  return redis::BlockingClient::make(std::move(url), options.timeout);
}

} // namespace

Result<std::unique_ptr<Sink>> sidekiq_sink(std::string_view redis_url, std::string queue, RedisSinkOptions options) {
  if (queue.empty()) return invalid("a Sidekiq queue has a name");
  Result<redis::RedisUrl> url = redis::parse_url(redis_url);
  if (!url) return std::move(url).fault();
  if (url->cluster) return invalid("Sidekiq does not use a Redis Cluster: write redis:// or rediss:// in the URL");
  Result<RedisPtr> redis = client_for(*std::move(url), options);
  if (!redis) return std::move(redis).fault();
  return std::unique_ptr<Sink>(std::make_unique<SidekiqSink>(*std::move(redis), std::move(queue)));
}

Result<std::unique_ptr<Sink>> redis_stream_sink(std::string_view redis_url, std::string stream,
                                                RedisSinkOptions options) {
  if (stream.empty()) return invalid("a Redis stream has a name");
  Result<redis::RedisUrl> url = redis::parse_url(redis_url);
  if (!url) return std::move(url).fault();
  Result<RedisPtr> redis = client_for(*std::move(url), options);
  if (!redis) return std::move(redis).fault();
  return std::unique_ptr<Sink>(std::make_unique<RedisStreamSink>(*std::move(redis), std::move(stream)));
}

} // namespace oncekey
