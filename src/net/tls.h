// tls: what every listener of ours accepts.
//
// TLS 1.3, and of TLS 1.2 only what has forward secrecy and authenticated encryption: ECDHE with AES-GCM or ChaCha20.
// CBC and RSA key exchange are not offered. No compression, no renegotiation.
#pragma once

#include <oncekey/result.h>

#include <boost/asio/ssl/context.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace oncekey {

// `prefix` is put in front of the settings' names in faults: "" for tls_cert and tls_key, "admin_" for admin_tls_cert.
Result<std::unique_ptr<boost::asio::ssl::context>> server_tls(const std::string& cert_file, const std::string& key_file,
                                                              std::string_view prefix = {});

} // namespace oncekey
