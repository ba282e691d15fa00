// pem_files: are the certificates and keys in a file usable? Reads files, and changes nothing.
#pragma once

#include <oncekey/result.h>

#include <optional>
#include <string>
#include <vector>

namespace oncekey {

// What is wrong, and with which of the two files.
struct PemFinding {
  enum class In { certificate, key };
  In in = In::certificate;
  std::string text; // "FILE: what is wrong; what to do"
};

// The certificate chain and private key of a listener. Either may be empty: the other is looked at alone.
std::vector<PemFinding> check_key_pair(const std::string& certificate_file, const std::string& key_file);

// A file of certificates to trust. A fault's message has the form of PemFinding::text.
Status check_trusted_certificates(const std::string& file);

// When the first certificate of a readable file is over, as in "Nov 16 12:00:00 2026 GMT", if that is in the past.
std::optional<std::string> expired_on(const std::string& certificate_file);

} // namespace oncekey
