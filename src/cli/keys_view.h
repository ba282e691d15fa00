// keys_view: the admin API's JSON as text for people.
#pragma once

#include <boost/json/value.hpp>

#include <cstddef>
#include <string>

namespace oncekey {

// A table with a line for each of {"keys":[...]}, or a sentence when there are none; then how many records were looked
// at, and how to get more. `width` is that of the terminal: requests and keys are cut to fit. 0 means any width.
std::string view_of_list(const boost::json::value& answer, std::size_t width = 0);
// One record, a line for each thing known about it, and its response.
std::string view_of_record(const boost::json::value& record);
// The same for {"jobs":[...]} and one of them.
std::string view_of_jobs(const boost::json::value& answer);
std::string view_of_job(const boost::json::value& job);
// The "error" of a refusal, or the text itself when it is not of that form.
std::string view_of_error(const std::string& body);

// A time of the API, text or milliseconds since 1970, in ISO 8601; "-" for one that never was.
std::string view_of_time(const boost::json::value& time);

} // namespace oncekey
