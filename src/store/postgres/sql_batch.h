// SqlBatch: one batch as the statements that ask for it, and the server's answers as the calls' answers.
//
// Writes go first, in one transaction, reads after it in another: a long response is sent when no lock is held any
// more, and a find that is also a promise to be told (Interest::settling) reads what it was promised for.
#pragma once

#include "store/postgres/postgres_queue.h"
#include "store/postgres/single_calls.h"

#include <cstdint>
#include <vector>

namespace oncekey::postgres {

class SqlBatch {
 public:
  // The batch outlives the sql. Calls that get an answer leave it, those that stay are to be asked for again.
  SqlBatch(CallBatch& batch, SqlTerms terms);

  bool has_writes() const { return !claims_.empty() || !fences_.empty() || !singles_.empty() || !awaits_.empty(); }
  bool has_reads() const { return !reads_.empty(); }
  std::vector<Statement> writes() const;
  std::vector<Statement> reads() const;

  // Only for sections that were committed. Writes are read first.
  void read_writes(const Section& section, PendingAnswers& pending);
  void read_reads(const Section& section, PendingAnswers& pending);

  // Answers with a fault whatever has not been answered of the writes, or of the reads.
  void refuse_writes(const Fault& fault, PendingAnswers& pending);
  void refuse_reads(const Fault& fault, PendingAnswers& pending);
  // The writes are asked for again, and so are the reads that stand behind one.
  void keep_writes();
  // For when claims and takes alone are refused: the other writes stay.
  void refuse_claims(const Fault& fault, PendingAnswers& pending);

  // Learned from the answers.
  std::int64_t records_written() const { return written_; }
  std::optional<Time> server_time() const { return server_time_; } // skew included
  std::vector<RecordId> awaited() const { return awaited_; }       // found in progress by a request that waits
  std::vector<Millis> retentions_claimed() const { return retentions_; }

 private:
  using Indexes = std::vector<std::size_t>;
  template <class T>
  T& first(std::size_t index) const {
    return std::get<T>(batch_[index].calls.front()->what);
  }
  ArrayParam locks_of(const Indexes& groups) const;
  ArrayParam ids_of(const Indexes& groups) const;
  Statement claim_statement() const;
  Statement settle_statement() const;

  void read_claims(const PGresult* result, PendingAnswers& pending);
  void read_fences(const PGresult* result, PendingAnswers& pending);
  void read_awaits(const PGresult* result);
  void answer_claimed(CallGroup& group, const Claimed& claimed, PendingAnswers& pending);
  void share_found(CallGroup& group, const Result<Found>& found, PendingAnswers& pending);
  void refuse_groups(const Indexes& groups, const Fault& fault, PendingAnswers& pending);

  CallBatch& batch_;
  const SqlTerms terms_;
  Indexes claims_, fences_, singles_, awaits_, reads_; // an awaited id is among the reads as well
  std::vector<bool> busy_;                             // by group: its lock was not free
  std::int64_t written_ = 0;
  std::optional<Time> server_time_;
  std::vector<RecordId> awaited_;
  std::vector<Millis> retentions_;
};

// A record out of a row of type oncekey.answer; a fault if its response is damaged.
Result<Record> record_of(const Row& row, const RecordId& id);

} // namespace oncekey::postgres
