#include "net/errors.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <cstring>
#include <string>

namespace oncekey {
namespace {

class StreamCategory final : public std::error_category {
 public:
  StreamCategory(const char* called, std::string (*text)(int)) : name_(called), message_(text) {}
  const char* name() const noexcept override { return name_; }
  std::string message(int value) const override { return message_(value); }

 private:
  const char* name_;
  std::string (*message_)(int);
};

const StreamCategory kStreamCategory("stream", [](int value) -> std::string {
  return static_cast<StreamError>(value) == StreamError::ended ? "the peer closed the connection"
                                                               : "the connection broke off without a TLS goodbye";
});
const StreamCategory kOpensslCategory("openssl", [](int value) -> std::string {
  const char* const reason = ERR_reason_error_string(static_cast<unsigned long>(value));
  return reason != nullptr ? reason : "TLS failed";
});
const StreamCategory kCertificateCategory("certificate", [](int value) -> std::string {
  if (value == X509_V_ERR_HOSTNAME_MISMATCH || value == X509_V_ERR_IP_ADDRESS_MISMATCH)
    return "its certificate is for another name";
  return std::string("its certificate is not trusted: ") + X509_verify_cert_error_string(value);
});

} // namespace

std::error_code make_error_code(StreamError error) { return {static_cast<int>(error), kStreamCategory}; }

std::error_code take_openssl_error() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (ERR_SYSTEM_ERROR(code)) return {ERR_GET_REASON(code), std::system_category()};
  if (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
    return StreamError::cut_off;
  return {static_cast<int>(code), kOpensslCategory};
}

std::error_code take_handshake_error(const SSL* session) {
  const std::error_code error = take_openssl_error();
  const long verified = SSL_get_verify_result(session);
  const bool refused = error.category() == kOpensslCategory &&
                       ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_CERTIFICATE_VERIFY_FAILED;
  if (!refused || verified == X509_V_OK) return error;
  return {static_cast<int>(verified), kCertificateCategory};
}

bool is_distrust(const std::error_code& error) { return error.category() == kCertificateCategory; }

bool is_plain_http(const std::error_code& error) {
  if (error.category() != kOpensslCategory) return false;
  const int reason = ERR_GET_REASON(static_cast<unsigned long>(error.value()));
  return reason == SSL_R_HTTP_REQUEST || reason == SSL_R_HTTPS_PROXY_REQUEST;
}

bool is_own_shortage(const std::error_code& error) {
  return error == std::errc::too_many_files_open || error == std::errc::too_many_files_open_in_system ||
         error == std::errc::not_enough_memory || error == std::errc::no_buffer_space;
}

} // namespace oncekey
