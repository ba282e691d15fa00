// tls: what our listeners accept and what our clients ask for.
//
// TLS 1.3, and TLS 1.2; a listener takes of the latter only what has forward secrecy and authenticated encryption:
// ECDHE with AES-GCM or ChaCha20. No compression, no renegotiation.
#pragma once

#include <oncekey/result.h>

#include <memory>

// OpenSSL's SSL_CTX, which only its own headers may name.
struct ssl_ctx_st;

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

} // namespace oncekey
