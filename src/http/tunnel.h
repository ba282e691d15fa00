// Tunnel: two connections joined, bytes carried both ways as they come, until both sides have ended.
//
// What a WebSocket needs after its handshake. Nothing of what passes is looked at. Each direction holds one read's
// worth of bytes and reads no more before the other side has taken them: a slow reader slows its sender down, and
// memory stays bounded. One side may end its direction while the other goes on (half close).
//
// Ends. A tunnel in which nothing moves in either direction for the idle time is closed; stop() closes it at once. Both
// look to the peers like a lost connection: a tunnel does not speak the protocol it carries.
//
// Belongs to the thread of its connections. Neither of them may have another reader or writer.
#pragma once

#include "http/exchange.h"

#include <boost/intrusive/list_hook.hpp>

namespace oncekey {

class Tunnel : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  enum class End {
    open,    // not yet
    closed,  // both sides have ended, everything was delivered
    idle,    // nothing moved for the idle time
    broken,  // one side failed
    stopped, // by stop()
  };

  Tunnel(ByteStream client, ByteStream upstream, Loop& loop, std::chrono::milliseconds idle);

  // Carries, first what the buffers hold already. The tunnel must live until this is over.
  Task<End> run();
  void stop() { close(End::stopped); }
  // Bytes that were carried whole to the other side.
  std::uint64_t from_client() const { return from_client_; }
  std::uint64_t from_upstream() const { return from_upstream_; }

 private:
  Task<void> run_direction(ByteStream& from, ByteStream& to, std::uint64_t& carried);
  Task<void> carry(ByteStream& from, ByteStream& to, std::uint64_t& carried);
  void moved() { idle_.after(patience_); }
  void pass_on_the_end(Transport& to);
  void close(End why);

  ByteStream client_;
  ByteStream upstream_;
  std::chrono::milliseconds patience_;
  Timer idle_;
  End end_ = End::open;
  int running_ = 0;
  std::uint64_t from_client_ = 0;
  std::uint64_t from_upstream_ = 0;
  Notice ended_; // a direction has
};

} // namespace oncekey
