// Counts once, in a program that links nothing but the phases.
#include <oncekey/inbox.h>
#include <oncekey/runner.h>

#include <cstdio>

int main(int, char** arguments) {
  auto database = oncekey::open_database(std::string("sqlite:") + arguments[1]);
  if (!database.ok() || !database.value()->migrate().ok()) return 1;
  int runs = 0;
  oncekey::Operation count("count");
  count.phase("started", [&runs](oncekey::Phase& phase) {
    ++runs;
    return phase.respond(200, "text/plain", "counted");
  });
  oncekey::Runner runner(*database.value(), {count});
  const oncekey::OperationRequest request{.operation = "count", .principal = "you", .key = "k", .path = "/count"};
  for (int i = 0; i < 2; ++i) std::printf("%d\n", runner.http_answer(request, runner.run(request)).status);
  std::printf("runs %d\n", runs);
  return 0;
}
