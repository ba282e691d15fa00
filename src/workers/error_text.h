// error_text: the message of a sink or an exception, in a form that every database can keep.
//
// The message comes from outside: a server's answer in any encoding, an exception's bytes. Postgres refuses text that
// is not valid UTF-8, and with it the statement that records what became of a whole batch.
#pragma once

#include <string>
#include <string_view>

namespace oncekey {

// At most a thousand bytes, cut between characters. Bytes that are not UTF-8 or not visible become question marks.
std::string error_text(std::string_view said);

} // namespace oncekey
