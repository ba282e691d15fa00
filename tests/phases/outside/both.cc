// Charges through the client inside a foreign call: what is not decided throws, and the operation stays where it is.
#include <oncekey/client.h>
#include <oncekey/runner.h>

#include <cstdio>

int main(int, char** arguments) {
  auto database = oncekey::open_database(std::string("sqlite:") + arguments[1]);
  if (!database.ok() || !database.value()->migrate().ok()) return 1;
  oncekey::ClientOptions options;
  options.retry.max_attempts = 1;
  const auto client = oncekey::Client::open(options);
  if (!client.ok()) return 1;
  oncekey::Operation pay("pay");
  pay.call_then_phase(
      "started", "charge",
      [&](const oncekey::ForeignCall& call) {
        oncekey::ClientRequest request;
        request.url = "http://127.0.0.1:1/charges";
        request.body = call.request().body;
        request.key = call.key();
        const oncekey::ClientAnswer answer = oncekey::decided(client.value()->send(request));
        return answer.ending == oncekey::Ending::succeeded ? answer.response->body : std::string("declined");
      },
      [](oncekey::Phase& phase, const std::string& charge) { return phase.respond(201, "text/plain", charge); });
  oncekey::Runner runner(*database.value(), {pay});
  const oncekey::OperationRequest request{
      .operation = "pay", .principal = "you", .key = "k", .path = "/pay", .body = "amount=1"};
  try {
    static_cast<void>(runner.run(request));
  } catch (const oncekey::Undecided&) {
    std::printf("undecided\n");
  }
  return 0;
}
