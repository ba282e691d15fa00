#include "net/tls.h"

#include "net/errors.h"

#include <fmt/format.h>

#include <openssl/ssl.h>

namespace oncekey {
namespace {

constexpr const char* kTls12Ciphers = "ECDHE+AESGCM:ECDHE+CHACHA20";

Result<TlsContext> new_context(const SSL_METHOD* method) {
  TlsContext context(SSL_CTX_new(method), SSL_CTX_free);
  if (!context) return unavailable(fmt::format("no TLS context: {}", take_openssl_error().message()));
  SSL_CTX_set_options(context.get(), SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_read_ahead(context.get(), 1); // one system call for as much as there is
  // Calls with the macros around SSL_CTX_ctrl cast in a way we do not compile.
  SSL_CTX_ctrl(context.get(), SSL_CTRL_MODE,
               SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS, nullptr);
  if (SSL_CTX_ctrl(context.get(), SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr) != 1)
    return invalid("this OpenSSL has no TLS 1.2");
  return context;
}

Status show_certificate(SSL_CTX* context, const std::string& cert_file, const std::string& key_file,
                        std::string_view prefix) {
  if (SSL_CTX_use_certificate_chain_file(context, cert_file.c_str()) != 1)
    return invalid(fmt::format("{}tls_cert {}: {}; give a PEM file with the certificate chain", prefix, cert_file,
                               take_openssl_error().message()));
  if (SSL_CTX_use_PrivateKey_file(context, key_file.c_str(), SSL_FILETYPE_PEM) != 1)
    return invalid(fmt::format("{}tls_key {}: {}; give the PEM private key of the certificate", prefix, key_file,
                               take_openssl_error().message()));
  return ok_status();
}

Status ask_for_certificates(SSL_CTX* context, const std::string& client_ca) {
  const bool loaded = SSL_CTX_load_verify_locations(context, client_ca.c_str(), nullptr) == 1;
  STACK_OF(X509_NAME)* const names = loaded ? SSL_load_client_CA_file(client_ca.c_str()) : nullptr;
  if (names == nullptr)
    return invalid(fmt::format("client_ca {}: {}; give a PEM file of the authorities that issue client certificates",
                               client_ca, loaded ? "it holds no certificate" : take_openssl_error().message()));
  SSL_CTX_set_client_CA_list(context, names);
  // Asked for, and verified if there is one: whether a request needs one is for its route to say.
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  // A resumed session counts as verified, so that it must be one of this listener.
  static constexpr unsigned char kSessions[] = "oncekey";
  SSL_CTX_set_session_id_context(context, kSessions, sizeof kSessions - 1);
  return ok_status();
}

} // namespace

Result<TlsContext> server_tls(const std::string& cert_file, const std::string& key_file, std::string_view prefix,
                              const std::string& client_ca) {
  Result<TlsContext> context = new_context(TLS_server_method());
  if (!context) return context;
  SSL_CTX_set_options(context->get(), SSL_OP_CIPHER_SERVER_PREFERENCE);
  if (SSL_CTX_set_cipher_list(context->get(), kTls12Ciphers) != 1)
    return invalid("this OpenSSL has no TLS 1.2 with forward secrecy");
  if (const Status shown = show_certificate(context->get(), cert_file, key_file, prefix); !shown) return shown.fault();
  if (!client_ca.empty()) {
    if (const Status asked = ask_for_certificates(context->get(), client_ca); !asked) return asked.fault();
  }
  return context;
}

Result<TlsContext> client_tls(const ClientTlsFiles& files) {
  Result<TlsContext> context = new_context(TLS_client_method());
  if (!context) return context;
  SSL_CTX_set_verify(context->get(), SSL_VERIFY_PEER, nullptr);
  const bool loaded = files.ca_file.empty()
                          ? SSL_CTX_set_default_verify_paths(context->get()) == 1
                          : SSL_CTX_load_verify_locations(context->get(), files.ca_file.c_str(), nullptr) == 1;
  if (!loaded)
    return invalid(fmt::format("{} {}: {}; give a PEM file of certificates to trust", files.ca_setting, files.ca_file,
                               take_openssl_error().message()));
  if (!files.cert_file.empty()) {
    const Status shown = show_certificate(context->get(), files.cert_file, files.key_file, {});
    if (!shown) return shown.fault();
  }
  return context;
}

} // namespace oncekey
