#include "base/certificate.h"

#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>

namespace oncekey {
namespace {

struct NamesFree {
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};

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
  const std::unique_ptr<GENERAL_NAMES, NamesFree> names(
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

} // namespace oncekey
