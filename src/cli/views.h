// views: the admin API's JSON, and tables, as text for people at a terminal.
#pragma once

#include <boost/json.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

// A table with a line for each of {"keys":[...]}, or a sentence when there are none; then how many records were looked
// at, and how to get more. `width` is that of the terminal: requests and keys are cut to fit. 0 means any width.
std::string view_of_list(const boost::json::value& answer, std::size_t width = 0);
// One record, a line for each thing known about it, and its response.
std::string view_of_record(const boost::json::value& record);
// The same for {"jobs":[...]} and one of them.
std::string view_of_jobs(const boost::json::value& answer);
std::string view_of_job(const boost::json::value& job);
// What a run over many jobs would do, and what one has done.
std::string view_of_counted(const boost::json::value& counted);
std::string view_of_run(const boost::json::value& run);
// The "error" of a refusal, or the text itself when it is not of that form.
std::string view_of_error(const std::string& body);

// A time of the API, text or milliseconds since 1970, in ISO 8601; "-" for one that never was.
std::string view_of_time(const boost::json::value& time);

// What an object has under this name; null if it has nothing, or is no object.
const boost::json::value& member(const boost::json::value& object, std::string_view name);

// The text, or the number as text, that an object has under this name; "-" if there is none.
std::string text_of_member(const boost::json::value& object, std::string_view name);

// Every row has as many cells as the first, which holds the titles. The last column is not padded.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

// Text that came from a client, made safe to print: control bytes could move a terminal's cursor and forge a line.
// Longer than `length_max` is cut, with dots at the end.
std::string printable(std::string_view text, std::size_t length_max);

} // namespace oncekey
