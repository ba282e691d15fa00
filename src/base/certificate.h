// certificate: the name by which a verified client certificate is known.
#pragma once

#include <optional>
#include <string>

// OpenSSL's X509, which only its own headers may name.
struct x509_st;

namespace oncekey {

// A certificate may be renewed with the same name; hence the name and never its bytes. Names are compared byte by byte,
// also beyond a NUL, so that "a\0.example" is not "a".
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

// Nothing for a certificate that has no name at all.
std::optional<CertificateName> name_of(const x509_st& certificate);

} // namespace oncekey
