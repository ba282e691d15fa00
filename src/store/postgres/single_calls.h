// single_calls: the calls with a statement of their own: those of operators, and all of the jobs.
#pragma once

#include "store/common/calls.h"
#include "store/postgres/connection.h"
#include "store/postgres/sql_parts.h"

#include <optional>
#include <vector>

namespace oncekey::postgres {

Statement statement_of(const OperatorCall& call, const SqlTerms& terms);
Statement statement_of(const StageCall& call, const SqlTerms& terms);
Statement statement_of(const TakeCall& call, const SqlTerms& terms);
Statement statement_of(const AttemptCall& call, const SqlTerms& terms);
Statement statement_of(const FindJobCall& call, const SqlTerms& terms);
Statement statement_of(const JobOperatorCall& call, const SqlTerms& terms);

// The answer in the result of that statement. Nothing if the id's lock was not free: the call is to be sent again.
std::optional<Result<OperatorAnswer>> answer_of(const OperatorCall& call, const PGresult* result);
std::optional<Result<StageAnswer>> answer_of(const StageCall& call, const PGresult* result);
std::optional<Result<std::vector<TakenJob>>> answer_of(const TakeCall& call, const PGresult* result);
std::optional<Result<FenceAnswer>> answer_of(const AttemptCall& call, const PGresult* result);
std::optional<Result<std::optional<FoundJob>>> answer_of(const FindJobCall& call, const PGresult* result);
std::optional<Result<JobAnswer>> answer_of(const JobOperatorCall& call, const PGresult* result);

// A job out of a row that has all of oncekey.job behind one other column.
Result<StoredJob> job_of(const Row& row);

} // namespace oncekey::postgres
