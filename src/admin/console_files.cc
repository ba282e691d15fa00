#include "admin/console_files.h"

#include <algorithm>

namespace oncekey {
namespace {

constexpr std::string_view kFolder = "/console/";
constexpr std::string_view kPage = "index.html";
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

} // namespace

bool is_console_path(std::string_view path) { return path == "/" || path == "/console" || path.starts_with(kFolder); }

Task<void> send_console_file(Exchange& exchange) {
  const std::string_view path = exchange.request().path();
  Headers headers;
  if (!path.starts_with(kFolder)) {
    headers.add("Location", kFolder);
    headers.add("Cache-Control", "no-store");
    co_await exchange.send(302, {}, headers, {});
    co_return;
  }
  const std::string_view name = path == kFolder ? kPage : path.substr(kFolder.size());
  const auto files = console_files();
  const auto file =
      std::find_if(files.begin(), files.end(), [&](const ConsoleFile& each) { return each.name == name; });
  if (file == files.end()) {
    headers.add("Content-Type", "text/plain; charset=utf-8");
    headers.add("Cache-Control", "no-store");
    co_await exchange.send(404, {}, headers, "The console has no such file. It begins at /console/\n");
    co_return;
  }
  headers.add("Content-Type", file->content_type);
  headers.add("Content-Security-Policy", kPolicy);
  // Kept by the browser and asked for again each time: another version of the gateway brings other files.
  headers.add("Cache-Control", "no-cache");
  headers.add("ETag", file->etag);
  const bool known = lists(exchange.request().headers, "If-None-Match", file->etag);
  co_await exchange.send(known ? 304 : 200, {}, headers, known ? std::string_view{} : file->bytes);
}

} // namespace oncekey
