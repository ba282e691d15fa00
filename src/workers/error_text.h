// error_text: what a sink or an exception said, as a text that every database keeps.
//
// It comes from outside: a server's answer in any encoding, an exception's bytes. Postgres refuses text that is not
// valid UTF-8, and with it the statement that would have recorded what became of a whole batch.
#pragma once

#include <string>
#include <string_view>

namespace oncekey {

// At most a thousand bytes of it, cut between characters; what is no UTF-8 and no visible text becomes a question mark.
std::string error_text(std::string_view said);

} // namespace oncekey
