#include "http/tunnel.h"

namespace oncekey {

// A TLS stream cannot be told that one direction has ended while the other is being read. Once its peer's direction is
// over, what still comes of the TLS side is carried as long as it comes without longer pauses than this.
constexpr std::chrono::milliseconds kRestOfTls{2000};

Tunnel::Tunnel(ByteStream client, ByteStream upstream, Loop& loop, std::chrono::milliseconds idle)
    : client_(client), upstream_(upstream), patience_(idle), idle_(loop, [this] { close(End::idle); }), ended_(loop) {}

Task<Tunnel::End> Tunnel::run() {
  client_.transport.no_deadline();
  upstream_.transport.no_deadline();
  moved();
  running_ = 2;
  spawn(run_direction(upstream_, client_, from_upstream_));
  spawn(run_direction(client_, upstream_, from_client_));
  while (running_ > 0) co_await ended_.wait();
  idle_.clear();
  if (end_ != End::open) co_return end_;
  end_ = End::closed;
  if (upstream_.transport.secure()) co_await upstream_.transport.shutdown_send();
  if (client_.transport.secure()) co_await client_.transport.shutdown_send();
  co_return end_;
}

Task<void> Tunnel::run_direction(ByteStream& from, ByteStream& to, std::uint64_t& carried) {
  try {
    co_await carry(from, to, carried);
  } catch (const std::exception&) {
    close(End::broken);
  }
  --running_;
  ended_.give();
}

Task<void> Tunnel::carry(ByteStream& from, ByteStream& to, std::uint64_t& carried) {
  while (end_ == End::open) {
    if (from.buffer.empty()) {
      const IoResult got = co_await from.transport.read_some(from.buffer.room(kReadBytes));
      if (end_ != End::open) co_return;
      if (is_end(got.error)) co_return pass_on_the_end(to.transport);
      if (got.error) co_return close(End::broken);
      from.buffer.received(got.bytes);
      moved();
    }
    const std::string_view bytes = from.buffer.unread();
    const IoResult written = co_await to.transport.write(bytes);
    if (written.error) co_return close(End::broken);
    carried += bytes.size();
    from.buffer.consume(bytes.size());
    moved();
  }
}

void Tunnel::pass_on_the_end(Transport& to) {
  if (to.secure()) {
    patience_ = std::min(patience_, kRestOfTls);
  } else {
    to.end_sending();
  }
  moved();
}

void Tunnel::close(End why) {
  if (end_ != End::open) return;
  end_ = why;
  client_.transport.close();
  upstream_.transport.close();
}

} // namespace oncekey
