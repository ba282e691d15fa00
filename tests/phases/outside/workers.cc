// Greets once and sends a job, in a program that knows nothing of oncekey but its installed headers.
#include <oncekey/workers.h>

#include <cstdio>

int main(int, char** arguments) {
  auto database = oncekey::open_database(std::string("sqlite:") + arguments[1]);
  if (!database.ok() || !database.value()->migrate().ok()) return 1;

  oncekey::Operation greet("greet");
  greet.phase("started", [](oncekey::Phase& phase) {
    phase.stage_job({.sink = "out", .name = "hello", .args = "[1]"});
    return phase.respond(200, "text/plain", "hello " + phase.request().principal);
  });
  oncekey::Runner runner(*database.value(), {greet});
  const oncekey::OperationRequest request{
      .operation = "greet", .principal = "you", .key = "k", .path = "/greet", .body = "x"};
  for (int i = 0; i < 2; ++i) {
    const auto answer = runner.http_answer(request, runner.run(request));
    std::printf("%d %s %s\n", answer.status, answer.body.c_str(),
                answer.headers.has("Idempotent-Replayed") ? "replayed" : "first");
  }
  oncekey::Enqueuer enqueuer(*database.value(), {{"out", oncekey::callback_sink([](const oncekey::Job& job) {
                                                    std::printf("job %s %s\n", job.name.c_str(), job.args.c_str());
                                                  })}});
  if (!enqueuer.run_once().ok()) return 1;
  return 0;
}
