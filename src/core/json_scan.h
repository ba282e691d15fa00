// json_scan: one strict pass over a JSON text, as events.
//
// A tree of values would cost an allocation per member and turn numbers into doubles, in which 9007199254740993 and
// 9007199254740992 are the same. Here strings arrive decoded and numbers as the very text that was sent.
#pragma once

#include <boost/json/basic_parser_impl.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace oncekey {

// Deeper than any real API request. It bounds the parser's stack.
inline constexpr std::size_t kJsonDepthMax = 64;
// Bounds the memory a hostile body full of tiny members can make us use, to a small multiple of the body.
inline constexpr std::size_t kJsonValuesMax = 1'000'000;

namespace json_detail {

// Joins what Boost.JSON delivers in parts and counts values. An event handler that returns false ends the scan.
template <class Events>
class ScanHandler {
 public:
  static constexpr std::size_t max_array_size = kJsonValuesMax;
  static constexpr std::size_t max_object_size = kJsonValuesMax;
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);

  explicit ScanHandler(Events& events) : events_(&events) {}

  using Text = boost::json::string_view;
  using Error = boost::json::error_code;

  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }
  bool on_object_begin(Error& error) {
    return value(error, [&] { events_->object_begins(); });
  }
  bool on_array_begin(Error& error) {
    return value(error, [&] { events_->array_begins(); });
  }
  bool on_object_end(std::size_t, Error&) { return events_->object_ends(), true; }
  bool on_array_end(std::size_t, Error&) { return events_->array_ends(), true; }
  bool on_key_part(Text part, std::size_t, Error&) { return keep(part); }
  bool on_key(Text rest, std::size_t, Error&) {
    events_->name(joined(rest));
    pending_.clear();
    return true;
  }
  bool on_string_part(Text part, std::size_t, Error&) { return keep(part); }
  bool on_string(Text rest, std::size_t, Error& error) {
    return value(error, [&] { events_->string(joined(rest)); });
  }
  bool on_number_part(Text part, Error&) { return keep(part); }
  bool on_int64(std::int64_t, Text rest, Error& error) { return number(rest, error); }
  bool on_uint64(std::uint64_t, Text rest, Error& error) { return number(rest, error); }
  bool on_double(double, Text rest, Error& error) { return number(rest, error); }
  bool on_bool(bool truth, Error& error) {
    return value(error, [&] { events_->literal(truth ? "true" : "false"); });
  }
  bool on_null(Error& error) {
    return value(error, [&] { events_->literal("null"); });
  }
  bool on_comment_part(Text, Error&) { return true; }
  bool on_comment(Text, Error&) { return true; }

 private:
  bool keep(Text part) { return pending_.append(part.data(), part.size()), true; }

  std::string_view joined(Text rest) {
    if (pending_.empty()) return {rest.data(), rest.size()};
    keep(rest);
    return pending_;
  }

  bool number(Text rest, Error& error) {
    return value(error, [&] { events_->number(joined(rest)); });
  }

  template <class Tell>
  bool value(Error& error, Tell tell) {
    if (++values_ > kJsonValuesMax) {
      error = boost::json::error::array_too_large;
      return false;
    }
    tell();
    pending_.clear();
    return true;
  }

  Events* events_;
  std::string pending_;
  std::size_t values_ = 0;
};

} // namespace json_detail

// Calls events.object_begins(), object_ends(), array_begins(), array_ends(), name(text), string(text), number(text) and
// literal(text) in document order. False when the text is not one JSON value, or is beyond the limits above; the events
// so far then mean nothing.
template <class Events>
bool scan_json(std::string_view text, Events& events) {
  boost::json::parse_options options;
  options.max_depth = kJsonDepthMax;
  boost::json::basic_parser<json_detail::ScanHandler<Events>> parser(options, events);
  boost::json::error_code error;
  const std::size_t read = parser.write_some(false, text.data(), text.size(), error);
  return !error && parser.done() && read == text.size();
}

} // namespace oncekey
