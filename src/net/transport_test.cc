#include "net/transport.h"

#include "net/connect.h"
#include "net/listener.h"

#include <gtest/gtest.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace oncekey {
namespace {

using std::chrono::milliseconds;
constexpr std::chrono::seconds kLong{30};

MonotonicTime soon() { return std::chrono::steady_clock::now() + milliseconds(1); }
MonotonicTime in_a_while() { return std::chrono::steady_clock::now() + kLong; }

// Self-signed certificates, each in a file with its key, for the names that a test asks for.
class Certificates : public testing::Environment {
 public:
  static std::string file_for(const std::string& name) {
    const auto folder = std::filesystem::temp_directory_path() / ("oncekey-net-test-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    const std::string path = folder / (name + ".pem");
    if (!std::filesystem::exists(path)) make(path, name);
    return path;
  }
  void TearDown() override {
    std::filesystem::remove_all(std::filesystem::temp_directory_path() /
                                ("oncekey-net-test-" + std::to_string(::getpid())));
  }

 private:
  static void make(const std::string& path, const std::string& name) {
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> made(X509_new(), X509_free);
    X509_set_version(made.get(), X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
    X509_set_pubkey(made.get(), key.get());
    X509_NAME* const subject = X509_get_subject_name(made.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1,
                               -1, 0);
    X509_set_issuer_name(made.get(), subject);
    const std::string names = (parse_ip(name) ? "IP:" : "DNS:") + name;
    for (const auto& [kind, value] :
         {std::pair{NID_subject_alt_name, names}, std::pair{NID_basic_constraints, std::string("critical,CA:TRUE")}}) {
      X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
      X509_add_ext(made.get(), extension, -1);
      X509_EXTENSION_free(extension);
    }
    X509_sign(made.get(), key.get(), EVP_sha256());
    const std::unique_ptr<std::FILE, decltype(&std::fclose)> file(std::fopen(path.c_str(), "w"), std::fclose);
    PEM_write_X509(file.get(), made.get());
    PEM_write_PrivateKey(file.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  }
};
[[maybe_unused]] testing::Environment* const kCertificates = testing::AddGlobalTestEnvironment(new Certificates);

enum class Over { plain, tls };

// Two ends of one connection, on one loop.
class TwoEnds : public testing::TestWithParam<Over> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(listener_.listen("127.0.0.1", 0).ok());
    const std::string address = listener_.address();
    port_ = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
    if (GetParam() == Over::tls) {
      const std::string file = Certificates::file_for("127.0.0.1");
      server_tls_ = server_tls(file, file).value();
      client_tls_ = client_tls({.ca_file = file}).value();
    }
    spawn(accept());
    Connected connected = run(connect(loop_, "127.0.0.1", port_, client_tls_, in_a_while()));
    ASSERT_EQ(connected.failure, ConnectFailure::none) << connected.reason;
    client_ = std::move(connected.transport);
    loop_.run_until([&] { return accepted_; });
    ASSERT_FALSE(handshake_) << handshake_.message();
  }

  Task<void> accept() {
    Listener::Accepted accepted = co_await listener_.accept();
    server_ = std::make_unique<Transport>(loop_, std::move(accepted.socket));
    if (server_tls_) handshake_ = co_await server_->serve_tls(server_tls_);
    accepted_ = true;
  }

  template <class T>
  T run(Task<T> task) {
    return loop_.run_to_end(std::move(task));
  }
  static Task<std::string> read(Transport& from) {
    char room[64];
    const IoResult got = co_await from.read_some(room);
    if (got.error) co_return got.error.message();
    co_return std::string(room, got.bytes);
  }
  static Task<std::error_code> error_of_reading(Transport& from) {
    char room[64];
    const IoResult got = co_await from.read_some(room);
    co_return got.error;
  }
  static Task<void> write_all(Transport& to, std::string_view text, std::size_t& written) {
    const IoResult result = co_await to.write(text);
    written = result.bytes;
  }
  static Task<std::string> read_all(Transport& from, std::size_t bytes) {
    std::string all;
    std::string room(kReadBytes, '\0');
    while (all.size() < bytes) {
      const IoResult got = co_await from.read_some(room);
      if (got.error) co_return got.error.message();
      all.append(room, 0, got.bytes);
    }
    co_return all;
  }

  Loop loop_;
  Listener listener_{loop_};
  std::uint16_t port_ = 0;
  TlsContext server_tls_;
  TlsContext client_tls_;
  std::error_code handshake_;
  bool accepted_ = false;
  std::unique_ptr<Transport> client_;
  std::unique_ptr<Transport> server_;
};
INSTANTIATE_TEST_SUITE_P(Over, TwoEnds, testing::Values(Over::plain, Over::tls),
                         [](const auto& of) { return of.param == Over::plain ? "Plain" : "Tls"; });

TEST_P(TwoEnds, CarryBytesBothWaysInOrder) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run(client_->write("to the ", "server")).bytes, 13u);
    EXPECT_EQ(run(read(*server_)), "to the server");
    EXPECT_EQ(run(server_->write("to the client")).bytes, 13u);
    EXPECT_EQ(run(read(*client_)), "to the client");
  }
  EXPECT_EQ(server_->secure(), GetParam() == Over::tls);
}

TEST_P(TwoEnds, CarryMoreThanTheBuffersHoldInBothDirectionsAtOnce) {
  std::string large(6u << 20, 'x');
  for (std::size_t i = 0; i < large.size(); i += 997) large[i] = static_cast<char>(i);
  std::size_t from_client = 0;
  std::size_t from_server = 0;
  spawn(write_all(*client_, large, from_client));
  spawn(write_all(*server_, large, from_server));
  EXPECT_LT(from_client, large.size());
  EXPECT_TRUE(run(read_all(*server_, large.size())) == large);
  EXPECT_TRUE(run(read_all(*client_, large.size())) == large);
  EXPECT_EQ(from_client, large.size());
  EXPECT_EQ(from_server, large.size());
}

TEST_P(TwoEnds, AReadEndsAtTheDeadlineAndTheConnectionCanStillBeUsed) {
  client_->deadline(soon());
  EXPECT_EQ(run(error_of_reading(*client_)), std::errc::timed_out);
  EXPECT_TRUE(client_->expired());
  EXPECT_EQ(run(error_of_reading(*client_)), std::errc::timed_out) << "again, without waiting";
  client_->deadline_after(kLong);
  (void)run(server_->write("late"));
  EXPECT_EQ(run(read(*client_)), "late");
}

TEST_P(TwoEnds, AnInterruptedReadEndsAlthoughANewDeadlineWasSetMeanwhile) {
  std::optional<std::error_code> read_error;
  const auto reading = [&]() -> Task<void> {
    const std::error_code error = co_await error_of_reading(*client_);
    read_error = error;
  };
  spawn(reading());
  client_->deadline(soon());
  loop_.run_until([&] { return client_->expired(); });
  client_->deadline_after(kLong);
  loop_.run_until([&] { return read_error.has_value(); });
  EXPECT_EQ(*read_error, std::errc::timed_out);
}

TEST_P(TwoEnds, AWriteEndsWhenThePeerDoesNotKeepThePace) {
  const std::string large(32u << 20, 'x');
  Pace pace(milliseconds(10), 1u << 30);
  const IoResult result = run(client_->write(large, {}, &pace));
  EXPECT_EQ(result.error, std::errc::timed_out);
  EXPECT_LT(result.bytes, large.size());
}

TEST_P(TwoEnds, ClosingEndsTheWaitOfAReader) {
  loop_.post([&] { client_->close(); });
  EXPECT_EQ(run(error_of_reading(*client_)), std::errc::operation_canceled);
}

TEST_P(TwoEnds, AnEndInGoodOrderIsTheEndOfTheStream) {
  (void)run(server_->write("last words"));
  const auto say_goodbye = [&]() -> Task<void> { co_await server_->shutdown_send(); };
  spawn(say_goodbye());
  EXPECT_EQ(run(read(*client_)), "last words");
  EXPECT_TRUE(is_end(run(error_of_reading(*client_))));
  EXPECT_TRUE(is_end(run(error_of_reading(*client_)))) << "and again";
}

TEST_P(TwoEnds, AResetIsAnError) {
  server_->reset();
  EXPECT_EQ(run(error_of_reading(*client_)), std::errc::connection_reset);
}

TEST_P(TwoEnds, WritingToAPeerThatIsGoneIsAnErrorAndNoSignal) {
  server_->reset();
  (void)run(error_of_reading(*client_));
  EXPECT_TRUE(run(client_->write("hello?")).error);
}

TEST_P(TwoEnds, AreQuietUntilThereIsSomethingToRead) {
  (void)run(server_->write("first"));
  EXPECT_EQ(run(read(*client_)), "first");
  EXPECT_TRUE(client_->quiet());
  (void)run(server_->write("unasked for"));
  // The loop has no turn meanwhile: quiet() asks the kernel by itself.
  while (client_->quiet()) std::this_thread::yield();
}

TEST_P(TwoEnds, AreNotQuietAfterTheEnd) {
  (void)run(server_->write("first"));
  EXPECT_EQ(run(read(*client_)), "first");
  server_->close();
  while (client_->quiet()) std::this_thread::yield();
  client_->close();
  EXPECT_FALSE(client_->quiet());
}

TEST(Transport, OfManyThatHaveEndedNoneIsQuiet) {
  constexpr std::size_t kMany = 300; // more than the loop takes from the kernel at once
  Loop loop;
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<Descriptor> peers;
  std::size_t read = 0;
  const auto read_once = [&](Transport& from) -> Task<void> {
    char room[64];
    (void)co_await from.read_some(room);
    ++read;
  };
  for (std::size_t i = 0; i < kMany; ++i) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    transports.push_back(std::make_unique<Transport>(loop, Descriptor(ends[0])));
    peers.emplace_back(ends[1]);
    spawn(read_once(*transports.back()));
    ASSERT_EQ(::send(ends[1], "x", 1, 0), 1);
  }
  loop.run_until([&] { return read == kMany; });
  peers.clear();
  const MonotonicTime ended = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - ended < Loop::kFresh) std::this_thread::yield();
  EXPECT_FALSE(transports.back()->quiet());
}

TEST_P(TwoEnds, AReaderThatAlwaysHasMoreLetsTheOthersHaveTheirTurn) {
  const std::string large(4u << 20, 'x');
  std::size_t written = 0;
  spawn(write_all(*server_, large, written));
  bool over = false;
  bool had_a_turn = false;
  const auto read_slowly = [&]() -> Task<void> {
    char room[16];
    for (int i = 0; i < 1000; ++i) {
      const IoResult got = co_await client_->read_some(room);
      if (got.error) break;
    }
    over = true;
  };
  spawn(read_slowly());
  loop_.post([&] { had_a_turn = !over; });
  loop_.run_until([&] { return over; });
  EXPECT_TRUE(had_a_turn);
}

TEST_P(TwoEnds, TasksThatReadAndWriteEndWithTheLoop) {
  // Sanitizers tell if they do not.
  const std::string large(32u << 20, 'x');
  std::size_t written = 0;
  const auto reading = [&]() -> Task<void> { (void)co_await error_of_reading(*client_); };
  spawn(reading());
  spawn(write_all(*client_, large, written));
  loop_.poll();
}

TEST(TransportOverPlain, OneDirectionMayEndWhileTheOtherGoesOn) {
  Loop loop;
  Listener listener(loop);
  ASSERT_TRUE(listener.listen("127.0.0.1", 0).ok());
  const std::string address = listener.address();
  const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  const auto talk = [&]() -> Task<std::string> {
    Connected client = co_await connect(loop, "127.0.0.1", port, nullptr, in_a_while());
    Listener::Accepted accepted = co_await listener.accept();
    EXPECT_EQ(accepted.peer.ip(), "127.0.0.1");
    Transport server(loop, std::move(accepted.socket));
    client.transport->end_sending();
    char room[64];
    const IoResult end = co_await server.read_some(room);
    EXPECT_TRUE(is_end(end.error));
    (void)co_await server.write("still here");
    const IoResult got = co_await client.transport->read_some(room);
    co_return std::string(room, got.bytes);
  };
  EXPECT_EQ(loop.run_to_end(talk()), "still here");
}

// A listener whose first connection a test's task gets.
class OneConnection : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(listener_.listen("127.0.0.1", 0).ok());
    const std::string address = listener_.address();
    port_ = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  }
  // Serves TLS with a certificate of that name, then ends the connection as `end` says.
  Task<void> serve(std::string name, std::function<void(Transport&)> end = {}, std::string client_ca = {}) {
    const std::string file = Certificates::file_for(name);
    Listener::Accepted accepted = co_await listener_.accept();
    served_ = std::make_unique<Transport>(loop_, std::move(accepted.socket));
    const TlsContext context = server_tls(file, file, {}, client_ca).value();
    handshake_ = co_await served_->serve_tls(context);
    if (end) end(*served_);
  }
  Connected connect_trusting(const std::string& name, const std::string& host = "127.0.0.1") {
    const TlsContext tls = client_tls({.ca_file = Certificates::file_for(name)}).value();
    return loop_.run_to_end(connect(loop_, host, port_, tls, in_a_while()));
  }

  Loop loop_;
  Listener listener_{loop_};
  std::uint16_t port_ = 0;
  std::unique_ptr<Transport> served_;
  std::error_code handshake_;
};

TEST_F(OneConnection, ACertificateForAnotherNameIsNotAccepted) {
  spawn(serve("other.example"));
  const Connected connected = connect_trusting("other.example");
  EXPECT_EQ(connected.failure, ConnectFailure::distrusted);
  EXPECT_NE(connected.reason.find("its certificate is for another name"), std::string::npos) << connected.reason;
}

TEST_F(OneConnection, ACertificateOfAnotherAuthorityIsNotAccepted) {
  spawn(serve("127.0.0.1"));
  const Connected connected = connect_trusting("other.example");
  EXPECT_EQ(connected.failure, ConnectFailure::distrusted);
  EXPECT_NE(connected.reason.find("its certificate is not trusted"), std::string::npos) << connected.reason;
}

TEST_F(OneConnection, ANameIsVerifiedLikeAnAddress) {
  spawn(serve("localhost"));
  const Connected connected = connect_trusting("localhost", "localhost");
  EXPECT_EQ(connected.failure, ConnectFailure::none) << connected.reason;
}

TEST_F(OneConnection, ACertificateIsNotAcceptedWithoutANameToVerify) {
  spawn(serve("127.0.0.1"));
  const TlsContext tls = client_tls({.ca_file = Certificates::file_for("127.0.0.1")}).value();
  const auto shake_hands = [&]() -> Task<std::error_code> {
    Connected connected = co_await connect(loop_, "127.0.0.1", port_, nullptr, in_a_while());
    const std::error_code error = co_await connected.transport->connect_tls(tls, "");
    co_return error;
  };
  EXPECT_TRUE(loop_.run_to_end(shake_hands()));
}

TEST_F(OneConnection, ATlsStreamThatIsCutOffIsNotTakenForWhole) {
  spawn(serve("127.0.0.1", [](Transport& transport) { transport.close(); }));
  const Connected connected = connect_trusting("127.0.0.1");
  ASSERT_EQ(connected.failure, ConnectFailure::none) << connected.reason;
  const auto read = [&]() -> Task<std::error_code> {
    char room[64];
    const IoResult got = co_await connected.transport->read_some(room);
    co_return got.error;
  };
  EXPECT_EQ(loop_.run_to_end(read()), std::error_code(StreamError::cut_off));
}

TEST_F(OneConnection, APlainRequestOnATlsPortIsToldFromOtherNonsense) {
  spawn(serve("127.0.0.1"));
  const auto talk = [&]() -> Task<int> {
    Connected connected = co_await connect(loop_, "127.0.0.1", port_, nullptr, in_a_while());
    (void)co_await connected.transport->write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    while (!handshake_) co_await loop_.next_turn();
    co_return 0;
  };
  loop_.run_to_end(talk());
  EXPECT_TRUE(is_plain_http(handshake_)) << handshake_.message();
}

TEST_F(OneConnection, AClientCertificateIsVerifiedAndKnownByItsName) {
  const std::string file = Certificates::file_for("client.example");
  spawn(serve("127.0.0.1", {}, file));
  const TlsContext tls =
      client_tls({.ca_file = Certificates::file_for("127.0.0.1"), .cert_file = file, .key_file = file}).value();
  const Connected connected = loop_.run_to_end(connect(loop_, "127.0.0.1", port_, tls, in_a_while()));
  ASSERT_EQ(connected.failure, ConnectFailure::none) << connected.reason;
  loop_.run_until([&] { return handshake_ || served_->certificate() != nullptr; });
  ASSERT_NE(served_->certificate(), nullptr) << handshake_.message();
  EXPECT_EQ(served_->certificate()->value, "client.example");
}

TEST_F(OneConnection, AServerThatDoesNotShakeHandsTimesOut) {
  const TlsContext tls = client_tls({.ca_file = Certificates::file_for("127.0.0.1")}).value();
  const Connected connected = loop_.run_to_end(connect(loop_, "127.0.0.1", port_, tls, soon()));
  EXPECT_EQ(connected.failure, ConnectFailure::timed_out);
  EXPECT_EQ(connected.transport, nullptr);
}

TEST_F(OneConnection, APortWithoutAListenerIsUnreachable) {
  listener_.close();
  const Connected connected = loop_.run_to_end(connect(loop_, "127.0.0.1", port_, nullptr, in_a_while()));
  EXPECT_EQ(connected.failure, ConnectFailure::unreachable);
  EXPECT_NE(connected.reason.find("Connection refused connecting to 127.0.0.1:"), std::string::npos);
}

TEST_F(OneConnection, OurShortageOfDescriptorsIsToldFromAServerThatIsNotThere) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Connected connected = loop_.run_to_end(connect(loop_, "127.0.0.1", port_, nullptr, in_a_while()));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(connected.failure, ConnectFailure::own_shortage) << connected.reason;
}

TEST_F(OneConnection, APortThatIsTakenIsAConflict) {
  Listener second(loop_);
  const Status listening = second.listen("127.0.0.1", port_);
  ASSERT_FALSE(listening.ok());
  EXPECT_EQ(listening.fault().kind, FaultKind::conflict);
}

// A TLS server's Transport and a client that may do what ours never does. Between them a pair of Unix sockets: what one
// end sends, the other can read at once.
class UnusualClient : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    server_ = std::make_unique<Transport>(loop_, Descriptor(ends[0]));
    socket_ = Descriptor(ends[1]);
    const int small = 1;
    ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    context_ = client_tls({.ca_file = Certificates::file_for("127.0.0.1")}).value();
    client_.reset(SSL_new(context_.get()));
    SSL_set_fd(client_.get(), socket_.number());
    bool shaken = false;
    const auto serve = [&]() -> Task<void> {
      const std::string file = Certificates::file_for("127.0.0.1");
      EXPECT_FALSE(co_await server_->serve_tls(server_tls(file, file).value()));
      shaken = true;
    };
    spawn(serve());
    loop_.run_until([&] { return SSL_connect(client_.get()) == 1 && shaken; });
  }

  // That many KeyUpdates and then a byte, as one piece.
  void send_key_updates(int count, int kind) {
    BIO* const kept = BIO_new(BIO_s_mem());
    SSL_set0_wbio(client_.get(), kept);
    for (int i = 0; i < count; ++i) {
      SSL_key_update(client_.get(), kind);
      SSL_do_handshake(client_.get());
    }
    SSL_write(client_.get(), "y", 1);
    std::string text(BIO_ctrl_pending(kept), '\0');
    BIO_read(kept, text.data(), static_cast<int>(text.size()));
    SSL_set0_wbio(client_.get(), BIO_new_socket(socket_.number(), BIO_NOCLOSE));
    ASSERT_EQ(::send(socket_.number(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  }
  Task<void> read_once() {
    char room[64];
    const IoResult got = co_await server_->read_some(room);
    read_ = got.error ? got.error.message() : std::string(room, got.bytes);
  }
  // What the server has written.
  std::string receive(std::size_t bytes) {
    std::string all;
    char room[4096];
    loop_.run_until([&] {
      const int got = SSL_read(client_.get(), room, sizeof room);
      if (got > 0) all.append(room, static_cast<std::size_t>(got));
      return all.size() >= bytes;
    });
    return all;
  }

  Loop loop_;
  Descriptor socket_;
  TlsContext context_;
  std::unique_ptr<SSL, decltype(&SSL_free)> client_{nullptr, SSL_free};
  std::unique_ptr<Transport> server_;
  std::string read_;
};

TEST_F(UnusualClient, AReadThatMustAnswerWaitsForRoomBesideAWrite) {
  spawn(read_once());
  send_key_updates(12, SSL_KEY_UPDATE_REQUESTED);
  loop_.poll();
  EXPECT_EQ(read_, "") << "the answers to the first KeyUpdates fill the socket's buffer";
  bool written = false;
  const auto write = [&]() -> Task<void> {
    const IoResult result = co_await server_->write("x");
    written = !result.error;
  };
  spawn(write());
  loop_.poll();
  EXPECT_FALSE(written);
  EXPECT_EQ(receive(1), "x");
  loop_.run_until([&] { return !read_.empty() && written; });
  EXPECT_EQ(read_, "y");
}

TEST_F(UnusualClient, KeyUpdatesWithoutDataEndTheConnection) {
  send_key_updates(100, SSL_KEY_UPDATE_NOT_REQUESTED);
  spawn(read_once());
  loop_.run_until([&] { return !read_.empty(); });
  EXPECT_NE(read_, "y");
}

TEST_F(UnusualClient, KeyUpdatesBetweenDataAreWelcome) {
  for (int i = 0; i < 20; ++i) {
    read_.clear();
    spawn(read_once());
    send_key_updates(10, SSL_KEY_UPDATE_NOT_REQUESTED);
    loop_.run_until([&] { return !read_.empty(); });
    EXPECT_EQ(read_, "y");
  }
}

TEST_F(UnusualClient, APartOfARecordAtTheDeadlineDoesNotLoseIt) {
  spawn(read_once());
  loop_.poll();
  server_->deadline(std::chrono::steady_clock::now());
  const auto drip = [&]() -> Task<void> {
    constexpr std::string_view kHead("\x17\x03\x03\x40\x00", 5);
    for (std::size_t sent = 0; !server_->expired(); ++sent) {
      const char byte = sent < kHead.size() ? kHead[sent] : 'x';
      const MonotonicTime begun = std::chrono::steady_clock::now();
      (void)!::send(socket_.number(), &byte, 1, 0);
      while (std::chrono::steady_clock::now() - begun < Loop::kFresh) std::this_thread::yield();
      loop_.catch_up(); // the reader goes on in the next turn, and the deadline passes before
      co_await loop_.next_turn();
    }
  };
  spawn(drip());
  loop_.run_until([&] { return server_->expired(); });
  for (int turns = 0; turns < 3; ++turns) loop_.poll();
  EXPECT_EQ(read_, timed_out_error().message());
}

} // namespace
} // namespace oncekey
