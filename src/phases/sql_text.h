// sql_text: what the text of a statement tells without a database.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace oncekey::phases {

// "COMMIT" and the like if the statement begins, ends or prepares a transaction; empty for every other statement, and
// for what works with savepoints.
std::string transaction_word(std::string_view sql);

// The statements of a script, without the comments before them. Semicolons in quotes, in $$ … $$ and in comments end
// nothing.
std::vector<std::string_view> statements_of(std::string_view script);

} // namespace oncekey::phases
