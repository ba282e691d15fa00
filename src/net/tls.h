// tls: what our listeners accept, what our clients ask for, and what a stream can fail with, as std::error_code.
//
// TLS 1.3, and TLS 1.2; a listener takes of the latter only what has forward secrecy and authenticated encryption:
// ECDHE with AES-GCM or ChaCha20. No compression, no renegotiation.
#pragma once

#include <oncekey/result.h>

#include <memory>
#include <system_error>

// OpenSSL's SSL_CTX and SSL, which only its own headers may name.
struct ssl_ctx_st;
struct ssl_st;

namespace oncekey {

// Shared by all connections that are made with it, from any thread.
using TlsContext = std::shared_ptr<ssl_ctx_st>;

// For a listener. `prefix` is put in front of the settings' names in faults: "" for tls_cert and tls_key, "admin_" for
// admin_tls_cert. With `client_ca` (a PEM file) clients may show a certificate of these authorities; certificates of
// others end the handshake.
Result<TlsContext> server_tls(const std::string& cert_file, const std::string& key_file, std::string_view prefix = {},
                              const std::string& client_ca = {});

// For connections that we make: the peer must have a certificate for the name it is called by, of the authorities in
// `ca_file` (PEM), or of the system's if that is empty. Reading those takes milliseconds: make one context for many
// connections. `cert_file` and `key_file` are what we show to a peer that asks. `ca_setting` is the setting's name in
// faults.
struct ClientTlsFiles {
  std::string ca_file{};
  std::string ca_setting = "tls_ca";
  std::string cert_file{};
  std::string key_file{};
};
Result<TlsContext> client_tls(const ClientTlsFiles& files);

// What reading, writing and connecting can fail with, besides the errors of the system: the peer's end of the stream,
// what OpenSSL says, and why a certificate was not accepted. Every message() is for people.
enum class StreamError {
  ended = 1, // the peer has closed its direction, in good order
  cut_off,   // a TLS stream ended without close_notify: what has been read may not be all
};
std::error_code make_error_code(StreamError error);

inline bool is_end(const std::error_code& error) { return error == make_error_code(StreamError::ended); }

// The error of the last system call.
inline std::error_code last_system_error() { return {errno, std::system_category()}; }
inline std::error_code timed_out_error() { return std::make_error_code(std::errc::timed_out); }
inline std::error_code closed_error() { return std::make_error_code(std::errc::operation_canceled); }

// Takes the first error out of this thread's queue of OpenSSL and empties the queue.
std::error_code take_openssl_error();
// The same after a handshake; why the certificate was not accepted, if that was it.
std::error_code take_handshake_error(const ssl_st* session);

// The peer's certificate was not accepted: it is not trusted, or not for the name that was asked for.
bool is_distrust(const std::error_code& error);
// The peer answered the handshake with something else than TLS: its port is for plain HTTP.
bool is_no_tls(const std::error_code& error);
// As a server: the client sent a plain HTTP request where a handshake should be.
bool is_plain_http(const std::error_code& error);
// This process or machine is out of descriptors or memory, which says nothing of the peer.
bool is_own_shortage(const std::error_code& error);

} // namespace oncekey

template <>
struct std::is_error_code_enum<oncekey::StreamError> : std::true_type {};
