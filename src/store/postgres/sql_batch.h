// SqlBatch: one batch as the statements that ask for it, and the server's answers as the calls' answers.
//
// Writes go first, in one transaction, reads after it in another: a long response is sent when no lock is held any
// more, and a find that is also a promise to be told (Interest::settling) reads what it was promised for.
#pragma once

#include "store/postgres/postgres_state.h"
#include "store/postgres/single_calls.h"

namespace oncekey::postgres {

// Answers with a fault the calls that begin work (claims, takes); the others stay.
void refuse_new_work(CallBatch& batch, const Fault& fault, PendingAnswers& pending);

class SqlBatch {
 public:
  // The batch outlives the sql. Calls that get an answer leave it, those that stay are to be asked for again. What the
  // answers tell (the server's time, what was written, who waits) goes into the state.
  SqlBatch(CallBatch& batch, PostgresState& state, TextEncoding encoding, PendingAnswers& pending);

  bool has_writes() const { return !claims_.empty() || !fences_.empty() || !singles_.empty() || !awaits_.empty(); }
  bool has_reads() const { return !reads_.empty(); }
  std::vector<Statement> writes() const;
  std::vector<Statement> reads() const;

  // Only for sections that were committed. Writes are read first.
  void read_writes(const Section& section);
  void read_reads(const Section& section);

  // Answers with a fault whatever has not been answered of the writes, or of the reads.
  void refuse_writes(const Fault& fault);
  void refuse_reads(const Fault& fault) { refuse_groups(reads_, fault); }
  // The writes are asked for again, and so are the reads that stand behind one.
  void keep_writes();
  void refuse_new_work(const Fault& fault) { postgres::refuse_new_work(batch_, fault, pending_); }

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

  void read_claims(const PGresult* result);
  void read_fences(const PGresult* result);
  void read_awaits(const PGresult* result);
  void share_found(CallGroup& group, const Result<Found>& found);
  void refuse_groups(const Indexes& groups, const Fault& fault);

  CallBatch& batch_;
  PostgresState& state_;
  const SqlTerms terms_;
  PendingAnswers& pending_;
  Indexes claims_, fences_, singles_, awaits_, reads_; // an awaited id is among the reads as well
  std::vector<bool> busy_;                             // by group: its lock was not free
  std::uint64_t written_ = 0;                          // records and jobs
};

// A record out of a row of type oncekey.answer; a fault if its response is damaged.
Result<Record> record_of(const Row& row, const RecordId& id);

} // namespace oncekey::postgres
