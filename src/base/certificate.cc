#include "base/certificate.h"

#include "base/crypto.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <fmt/format.h>

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>

namespace oncekey {
namespace {

// A bundle of all public certificate authorities has a quarter of this.
constexpr std::size_t kLargestFile = 1u << 20;

using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

Result<std::string> read_pem(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return invalid(fmt::format("{}: {}", path, std::strerror(errno)));
  if (S_ISDIR(status.st_mode)) return invalid(fmt::format("{}: is a directory; give a PEM file", path));
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kLargestFile + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    return invalid(fmt::format("{}: {}", path, errno != 0 ? std::strerror(errno) : "input error"));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.empty()) return invalid(fmt::format("{}: is empty; give a PEM file", path));
  if (text.size() > kLargestFile) return invalid(fmt::format("{}: larger than 1 MiB; give a PEM file", path));
  return text;
}

Bio bio_of(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// Never ask for a passphrase on the terminal.
int no_passphrase(char*, int, int, void*) { return 0; }

// All of them; nothing if one of them is damaged.
std::optional<std::vector<Certificate>> certificates_in(const std::string& text) {
  std::vector<Certificate> found;
  const Bio bio = bio_of(text);
  ERR_clear_error();
  while (X509* const read = PEM_read_bio_X509(bio.get(), nullptr, no_passphrase, nullptr)) found.emplace_back(read);
  // At the end of the file OpenSSL reports that no further certificate begins: that error is the good end.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!at_end) return std::nullopt;
  return found;
}

PrivateKey key_in(const std::string& text) {
  const Bio bio = bio_of(text);
  PrivateKey key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  return key;
}

Result<std::vector<Certificate>> read_certificates(const std::string& path, std::string_view wanted) {
  const Result<std::string> text = read_pem(path);
  if (!text) return text.fault();
  auto found = certificates_in(*text);
  if (!found) return invalid(fmt::format("{}: a certificate in it is damaged; {}", path, wanted));
  if (found->empty()) {
    const std::string_view instead =
        text->find("PRIVATE KEY-----") != std::string::npos ? "it holds a private key" : "it holds no certificate";
    return invalid(fmt::format("{}: {}; {}", path, instead, wanted));
  }
  return *std::move(found);
}

Result<PrivateKey> read_key(const std::string& path) {
  const Result<std::string> text = read_pem(path);
  if (!text) return text.fault();
  PrivateKey key = key_in(*text);
  if (key) return key;
  if (text->find("ENCRYPTED") != std::string::npos)
    return invalid(
        fmt::format("{}: it is protected by a passphrase; "
                    "`openssl pkey -in {} -out NEW` writes a key without one",
                    path, path));
  const std::string_view instead = text->find("PRIVATE KEY-----") != std::string::npos   ? "the private key is damaged"
                                   : text->find("CERTIFICATE-----") != std::string::npos ? "it holds a certificate"
                                                                                         : "it holds no private key";
  return invalid(fmt::format("{}: {}; give the PEM private key of the certificate", path, instead));
}

// "FILE: ca md too weak: …". Takes the first error out of OpenSSL's queue and empties it. `wanted` is for a file that
// OpenSSL cannot read.
std::string openssl_objection(const std::string& file, std::string_view wanted) {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const int reason = ERR_GET_REASON(code);
  if (ERR_SYSTEM_ERROR(code)) return fmt::format("{}: {}; {}", file, std::strerror(reason), wanted);
  const char* const named = ERR_reason_error_string(code);
  const std::string_view text = named == nullptr ? "OpenSSL cannot use it" : named;
  if (ERR_GET_LIB(code) == ERR_LIB_SSL && (reason == SSL_R_EE_KEY_TOO_SMALL || reason == SSL_R_CA_KEY_TOO_SMALL))
    return fmt::format("{}: OpenSSL refuses it: {}; its keys need at least 2048 bits (RSA) or 224 bits (EC)", file,
                       text);
  if (ERR_GET_LIB(code) == ERR_LIB_SSL && reason == SSL_R_CA_MD_TOO_WEAK)
    return fmt::format("{}: OpenSSL refuses it: {}; let it be signed with SHA-256 or better", file, text);
  return fmt::format("{}: {}; {}", file, text, wanted);
}

std::string text_of(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<std::size_t>(ASN1_STRING_length(text))};
}

std::string der_of(const X509_NAME* name) {
  unsigned char* written = nullptr;
  const int length = i2d_X509_NAME(name, &written);
  if (length <= 0) return {};
  std::string der(reinterpret_cast<const char*>(written), static_cast<std::size_t>(length));
  OPENSSL_free(written);
  return der;
}

// The first alternative name of a kind (GEN_URI, GEN_DNS).
std::string first_of(const GENERAL_NAMES* names, int kind) {
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, i);
    if (name->type == kind) return text_of(name->d.ia5);
  }
  return {};
}

} // namespace

std::optional<CertificateName> name_of(const x509_st& certificate) {
  const std::unique_ptr<GENERAL_NAMES, Freed<GENERAL_NAMES_free>> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  if (names) {
    if (std::string uri = first_of(names.get(), GEN_URI); !uri.empty())
      return CertificateName{CertificateName::Kind::uri, std::move(uri), {}};
    if (std::string dns = first_of(names.get(), GEN_DNS); !dns.empty()) {
      std::transform(dns.begin(), dns.end(), dns.begin(),
                     [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; });
      return CertificateName{CertificateName::Kind::dns, std::move(dns), {}};
    }
  }
  const X509_NAME* const subject = X509_get_subject_name(&certificate);
  if (subject == nullptr || X509_NAME_entry_count(subject) == 0) return std::nullopt;
  return CertificateName{CertificateName::Kind::subject, der_of(subject), der_of(X509_get_issuer_name(&certificate))};
}

std::string name_text(const CertificateName& name) {
  if (name.kind != CertificateName::Kind::subject) return name.value;
  const auto* der = reinterpret_cast<const unsigned char*>(name.value.data());
  const std::unique_ptr<X509_NAME, Freed<X509_NAME_free>> subject(
      d2i_X509_NAME(nullptr, &der, static_cast<long>(name.value.size())));
  const Bio bio(BIO_new(BIO_s_mem()));
  if (!subject || !bio || X509_NAME_print_ex(bio.get(), subject.get(), 0, XN_FLAG_RFC2253) < 0) {
    ERR_clear_error();
    return "(unreadable subject)";
  }
  char* text = nullptr;
  const long length = BIO_get_mem_data(bio.get(), &text);
  return {text, static_cast<std::size_t>(length)};
}

std::optional<PemFinding> use_key_pair(ssl_ctx_st& context, const std::string& certificate_file,
                                       const std::string& key_file) {
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(&context, certificate_file.c_str()) != 1)
    return PemFinding{PemFinding::In::certificate,
                      openssl_objection(certificate_file, "give a PEM file with the certificate chain")};
  if (SSL_CTX_use_PrivateKey_file(&context, key_file.c_str(), SSL_FILETYPE_PEM) != 1)
    return PemFinding{PemFinding::In::key, openssl_objection(key_file, "give the PEM private key of the certificate")};
  return std::nullopt;
}

std::vector<PemFinding> check_key_pair(const std::string& certificate_file, const std::string& key_file) {
  std::vector<PemFinding> findings;
  Result<std::vector<Certificate>> chain = std::vector<Certificate>{};
  if (!certificate_file.empty()) {
    chain = read_certificates(certificate_file, "give a PEM file with the certificate chain");
    if (!chain) findings.push_back({PemFinding::In::certificate, chain.fault().message});
  }
  if (key_file.empty()) return findings;
  const Result<PrivateKey> key = read_key(key_file);
  if (!key) {
    findings.push_back({PemFinding::In::key, key.fault().message});
  } else if (chain && !chain->empty() && X509_check_private_key(chain->front().get(), key->get()) != 1) {
    ERR_clear_error();
    findings.push_back({PemFinding::In::key,
                        fmt::format("{}: it is not the key of the certificate in {}, whose first certificate must be "
                                    "the listener's own",
                                    key_file, certificate_file)});
  }
  if (!findings.empty() || certificate_file.empty()) return findings;
  const std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>> context(SSL_CTX_new(TLS_server_method()));
  if (!context) return findings;
  if (std::optional<PemFinding> refused = use_key_pair(*context, certificate_file, key_file))
    findings.push_back(*std::move(refused));
  return findings;
}

Status check_trusted_certificates(const std::string& file) {
  const auto found = read_certificates(file, "give a PEM file of the certificates to trust");
  if (!found) return found.fault();
  return ok_status();
}

std::optional<Time> end_of_certificate(const std::string& certificate_file) {
  const auto found = read_certificates(certificate_file, "");
  if (!found || found->empty()) return std::nullopt;
  std::tm parts{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(found->front().get()), &parts) != 1) return std::nullopt;
  return Time{std::chrono::seconds(::timegm(&parts))};
}

std::optional<std::string> expired_on(const std::string& certificate_file) {
  const auto found = read_certificates(certificate_file, "");
  if (!found || found->empty()) return std::nullopt;
  const ASN1_TIME* const end = X509_get0_notAfter(found->front().get());
  if (X509_cmp_current_time(end) > 0) return std::nullopt;
  const Bio bio(BIO_new(BIO_s_mem()));
  if (ASN1_TIME_print(bio.get(), end) != 1) return std::nullopt;
  std::string text(64, '\0');
  const int length = BIO_read(bio.get(), text.data(), static_cast<int>(text.size()));
  if (length <= 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(length));
  return text;
}

} // namespace oncekey
