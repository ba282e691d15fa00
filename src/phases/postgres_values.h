// postgres_values: values in the form that libpq sends, and rows in the form that it returns.
#pragma once

#include "phases/session.h"

#include <libpq-fe.h>

#include <deque>

namespace oncekey::phases {

// Values in libpq's form. Numbers and text go as text of a type that the server infers, bytes as they are.
class PostgresValues {
 public:
  // Refers to the bytes among the values. Neither copied nor moved: it points into itself.
  explicit PostgresValues(std::span<const SqlValue> values);
  PostgresValues(const PostgresValues&) = delete;
  PostgresValues& operator=(const PostgresValues&) = delete;
  int count() const { return static_cast<int>(pointers_.size()); }
  std::span<const Oid> types() const { return types_; }
  const char* const* pointers() const { return pointers_.data(); }
  const int* lengths() const { return lengths_.data(); }
  const int* formats() const { return formats_.data(); }

 private:
  void push(std::string_view value, Oid type, int format);

  std::deque<std::string> texts_; // do not move when more are added
  std::vector<const char*> pointers_;
  std::vector<int> lengths_;
  std::vector<Oid> types_;
  std::vector<int> formats_;
};

// Numbers as numbers, bytes as they are, everything else as its text.
SqlRows postgres_rows(PGresult* result, ColumnNames wanted);

} // namespace oncekey::phases
