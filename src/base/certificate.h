// certificate: the name by which a verified client certificate is known; and whether the certificates and keys in files
// are usable, which reads files and changes nothing.
#pragma once

#include <oncekey/result.h>
#include <oncekey/time.h>

#include <vector>

// OpenSSL's X509 and SSL_CTX, which only its own headers may name.
struct x509_st;
struct ssl_ctx_st;

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

// The name as people write it: "spiffe://shop/ops", "ops.example", or a subject as RFC 2253 has it, "CN=alice,O=Shop".
std::string name_text(const CertificateName& name);

// What is wrong, and with which of the two files.
struct PemFinding {
  enum class In { certificate, key };
  In in = In::certificate;
  std::string text; // "FILE: what is wrong; what to do"
};

// Gives the context the certificate chain and private key to show, or says what OpenSSL has against them: a key that is
// too short, say, or a signature with SHA-1.
std::optional<PemFinding> use_key_pair(ssl_ctx_st& context, const std::string& certificate_file,
                                       const std::string& key_file);

// The certificate chain and private key of a listener. Either may be empty: the other is looked at alone. Both are also
// tried as a listener uses them.
std::vector<PemFinding> check_key_pair(const std::string& certificate_file, const std::string& key_file);

// A file of certificates to trust. A fault's message has the form of PemFinding::text.
Status check_trusted_certificates(const std::string& file);

// When the first certificate of a readable file is over.
std::optional<Time> end_of_certificate(const std::string& certificate_file);
// The same, as in "Nov 16 12:00:00 2026 GMT", if that is in the past.
std::optional<std::string> expired_on(const std::string& certificate_file);

} // namespace oncekey
