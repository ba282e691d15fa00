#include <oncekey/sinks.h>

#include "base/json_text.h"
#include "workers/redis_connection.h"

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

// What both have in common: one command a job, sent in groups.
class RedisSink : public Sink {
 public:
  RedisSink(RedisAddress address, const RedisSinkOptions& options) : redis_(std::move(address), options.timeout) {}

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
  virtual std::vector<RedisArguments> before_each_group() const { return {}; }
  virtual RedisArguments command_of(const Job& job) const = 0;

 private:
  void hand_over(std::span<const Job> group, SinkReport& report) {
    std::vector<RedisArguments> commands = before_each_group();
    const std::size_t first = commands.size();
    for (const Job& job : group) commands.push_back(command_of(job));
    auto errors = redis_.run(commands);
    if (!errors.ok()) {
      report.down = errors.fault().message;
      return;
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::string& error = (*errors)[first + i];
      if (error.empty()) {
        report.accepted.push_back(group[i].id);
      } else if (is_servers_trouble(error)) {
        report.down = error;
      } else {
        report.refused.push_back({group[i].id, error});
      }
    }
  }

  RedisConnection redis_;
};

class SidekiqSink final : public RedisSink {
 public:
  SidekiqSink(RedisAddress address, std::string queue, const RedisSinkOptions& options)
      : RedisSink(std::move(address), options), queue_(std::move(queue)) {}

 protected:
  std::vector<RedisArguments> before_each_group() const override { return {{"SADD", "queues", queue_}}; }
  RedisArguments command_of(const Job& job) const override {
    return {"LPUSH", "queue:" + queue_, sidekiq_payload(job, queue_)};
  }

 private:
  const std::string queue_;
};

class RedisStreamSink final : public RedisSink {
 public:
  RedisStreamSink(RedisAddress address, std::string stream, const RedisSinkOptions& options)
      : RedisSink(std::move(address), options), stream_(std::move(stream)) {}

 protected:
  RedisArguments command_of(const Job& job) const override {
    return {"XADD", stream_, "*", "id", fmt::format("{}", job.id), "name", job.name, "args", job.args};
  }

 private:
  const std::string stream_;
};

} // namespace

Result<std::unique_ptr<Sink>> sidekiq_sink(std::string_view redis_url, std::string queue, RedisSinkOptions options) {
  auto address = parse_redis_address(redis_url);
  if (!address.ok()) return std::move(address).fault();
  if (queue.empty()) return invalid("a Sidekiq queue has a name");
  return std::unique_ptr<Sink>(std::make_unique<SidekiqSink>(std::move(address).value(), std::move(queue), options));
}

Result<std::unique_ptr<Sink>> redis_stream_sink(std::string_view redis_url, std::string stream,
                                                RedisSinkOptions options) {
  auto address = parse_redis_address(redis_url);
  if (!address.ok()) return std::move(address).fault();
  if (stream.empty()) return invalid("a Redis stream has a name");
  return std::unique_ptr<Sink>(
      std::make_unique<RedisStreamSink>(std::move(address).value(), std::move(stream), options));
}

} // namespace oncekey
