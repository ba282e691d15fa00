// certificate: the name by which a verified client certificate is known.
#pragma once

#include <optional>
#include <string>

// OpenSSL's X509, which only its own headers may name.
struct x509_st;

namespace oncekey {

// A client is known by its certificate's name and not by its bytes, because a certificate is renewed under the same
// name. Names are compared byte by byte, also behind a NUL: "a\0.example" is not "a".
struct CertificateName {
  enum class Kind {
    uri,     // the first URI among its alternative names, as SPIFFE writes them
    dns,     // else the first DNS name, in lower case
    subject, // else its subject, which is unique for one issuer
  };
  Kind kind = Kind::subject;
  std::string value;  // DER for a subject
  std::string issuer; // DER; for a subject alone
};

// Nothing for a certificate without any name.
std::optional<CertificateName> name_of(const x509_st& certificate);

} // namespace oncekey
