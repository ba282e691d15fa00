// Sends something that has no receiver, in a program that links nothing but the client.
#include <oncekey/client.h>
#include <oncekey/derive.h>

#include <cstdio>

int main() {
  oncekey::ClientOptions options;
  options.retry.max_attempts = 1;
  const auto client = oncekey::Client::open(options);
  if (!client.ok()) return 1;
  oncekey::ClientRequest request;
  request.url = "http://127.0.0.1:1/charges";
  request.key = oncekey::derive("order-17", "charge");
  const auto answer = client.value()->send(request);
  if (!answer.ok()) return 1;
  std::printf("%s after %u\n", std::string(oncekey::to_string(answer.value().ending)).c_str(), answer.value().attempts);
  try {
    oncekey::decided(answer);
  } catch (const oncekey::Undecided&) {
    std::printf("undecided\n");
  }
  return 0;
}
