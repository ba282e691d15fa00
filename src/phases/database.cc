#include <oncekey/database.h>

#include "base/enum_name.h"
#include "base/masked_url.h"
#include "phases/engine.h"

#include <fmt/format.h>

namespace oncekey {

std::string_view to_string(Dialect dialect) { return enum_name(dialect); }

Database::Database(std::unique_ptr<phases::Engine> engine) : engine_(std::move(engine)) {}
Database::~Database() = default;

Dialect Database::dialect() const { return engine_->dialect(); }
Status Database::migrate() { return engine_->migrate(); }

Result<std::unique_ptr<Database>> open_database(std::string_view url, DatabaseOptions options) {
  constexpr std::string_view kSqlite = "sqlite:";
  const auto opened = [&]() -> Result<std::unique_ptr<phases::Engine>> {
    if (options.connections_max == 0) return invalid("connections_max must be at least 1");
    if (options.answer_timeout <= Millis(0)) return invalid("answer_timeout must be greater than 0");
    if (static_cast<bool>(options.connections.borrow) != static_cast<bool>(options.connections.give_back)) {
      return invalid("connections must have both borrow and give_back, or neither");
    }
    if (url.starts_with(kSqlite)) {
      return phases::open_sqlite(std::string(url.substr(kSqlite.size())), std::move(options));
    }
    if (url.starts_with("postgres://") || url.starts_with("postgresql://")) {
      return phases::open_postgres(std::string(url), std::move(options));
    }
    return invalid(fmt::format("database URL: expected sqlite:PATH or postgres://…, got \"{}\"", masked_url(url)));
  };
  auto engine = opened();
  if (!engine.ok()) return std::move(engine).fault();
  return std::make_unique<Database>(std::move(engine).value());
}

Result<std::string_view> schema_text(std::string_view dialect) {
  if (dialect == "sqlite") return schema_text(Dialect::sqlite);
  if (dialect == "postgres") return schema_text(Dialect::postgres);
  return invalid(fmt::format("there is no schema for {}: sqlite and postgres are known", dialect));
}

} // namespace oncekey
