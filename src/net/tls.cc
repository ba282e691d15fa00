#include "net/tls.h"

#include "net/task.h"

#include <openssl/ssl.h>

#include <fmt/format.h>

namespace oncekey {
namespace {

constexpr const char* kTls12Ciphers = "ECDHE+AESGCM:ECDHE+CHACHA20";

} // namespace

Result<std::unique_ptr<asio::ssl::context>> server_tls(const std::string& cert_file, const std::string& key_file,
                                                       std::string_view prefix) {
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_options(native, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // Calls with the macros around SSL_CTX_ctrl cast in a way we do not compile.
  const bool limited = SSL_CTX_ctrl(native, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr) == 1 &&
                       SSL_CTX_set_cipher_list(native, kTls12Ciphers) == 1;
  if (!limited) return invalid("this OpenSSL has no TLS 1.2 with forward secrecy");
  error_code ec;
  context->use_certificate_chain_file(cert_file, ec);
  if (ec)
    return invalid(
        fmt::format("{}tls_cert {}: {}; give a PEM file with the certificate chain", prefix, cert_file, ec.message()));
  context->use_private_key_file(key_file, asio::ssl::context::pem, ec);
  if (ec)
    return invalid(
        fmt::format("{}tls_key {}: {}; give the PEM private key of the certificate", prefix, key_file, ec.message()));
  return context;
}

} // namespace oncekey
