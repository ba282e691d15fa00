#include "phases/sql_text.h"

#include <oncekey/database.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oncekey::phases {
namespace {

TEST(TransactionWord, IsFoundBehindBlanksCommentsAndAnyCase) {
  EXPECT_EQ(transaction_word("COMMIT"), "COMMIT");
  EXPECT_EQ(transaction_word(" \n -- a\n/* b */ commit work"), "COMMIT");
  EXPECT_EQ(transaction_word("; rollback"), "ROLLBACK");
  EXPECT_EQ(transaction_word("ROLLBACK AND CHAIN"), "ROLLBACK");
  EXPECT_EQ(transaction_word("begin"), "BEGIN");
  EXPECT_EQ(transaction_word("End;"), "END");
  EXPECT_EQ(transaction_word("start transaction read only"), "START TRANSACTION");
  EXPECT_EQ(transaction_word("PREPARE TRANSACTION 'x'"), "PREPARE TRANSACTION");
}

TEST(TransactionWord, IsNotInOtherStatements) {
  for (const char* const sql :
       {"SELECT 'COMMIT'", "SAVEPOINT a", "RELEASE a", "ROLLBACK TO a", "ROLLBACK TO SAVEPOINT a",
        "rollback transaction to savepoint a", "PREPARE a AS SELECT 1", "commitment", "-- COMMIT", "", "/* COMMIT"}) {
    EXPECT_EQ(transaction_word(sql), "") << sql;
  }
}

TEST(StatementsOf, EndAtSemicolonsThatAreNotQuoted) {
  EXPECT_THAT(statements_of("-- one; two\nSELECT ';' ; CREATE FUNCTION f() AS $$ a; b $$;\n SELECT 2 -- it's; so\n;"),
              testing::ElementsAre("SELECT ';' ", "CREATE FUNCTION f() AS $$ a; b $$", "SELECT 2 -- it's; so\n"));
  EXPECT_TRUE(statements_of(" ;; -- nothing\n").empty());
}

TEST(StatementsOf, OurSchemasBeginWithTheirVerbs) {
  for (const Dialect dialect : {Dialect::sqlite, Dialect::postgres}) {
    const auto statements = statements_of(schema_text(dialect));
    EXPECT_GT(statements.size(), 8u);
    for (const std::string_view statement : statements) {
      EXPECT_TRUE(statement.starts_with("CREATE ") || statement.starts_with("INSERT ")) << statement;
    }
  }
}

} // namespace
} // namespace oncekey::phases
