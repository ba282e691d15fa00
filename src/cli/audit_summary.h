// audit_summary: what the lines of an audit log prove about each record.
//
// The question is how often the API may have executed an operation. An owner that sent nothing did not execute. One
// that sent the request and kept no answer may have. So a number is only certain where every claim was answered.
#pragma once

#include <boost/json.hpp>

#include <string>
#include <string_view>

namespace oncekey {

// The text of a member, safe to print and cut to this length; empty if there is none.
inline constexpr std::size_t kAuditTextShown = 60;
std::string audit_text(const boost::json::value& line, std::string_view name);

// A paragraph for each record that lines name, in the order in which they do. The lines are those of the API, oldest
// first. Lines of one record are told apart by their fence, which each claim has of its own.
std::string audit_summary(const boost::json::array& lines);

} // namespace oncekey
