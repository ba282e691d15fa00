// errors: what reading, writing and connecting can fail with, as std::error_code.
//
// Besides the errors of the system: the peer's end of the stream, what OpenSSL says, and why a certificate was not
// accepted. Every message() is for people.
#pragma once

#include <system_error>

// OpenSSL's SSL, which only its own headers may name.
struct ssl_st;

namespace oncekey {

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
// As a server: the client sent a plain HTTP request where a handshake should be.
bool is_plain_http(const std::error_code& error);
// This process or machine is out of descriptors or memory, which says nothing of the peer.
bool is_own_shortage(const std::error_code& error);

} // namespace oncekey

template <>
struct std::is_error_code_enum<oncekey::StreamError> : std::true_type {};
