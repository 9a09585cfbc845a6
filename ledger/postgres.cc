#include <libpq-fe.h>

#include <algorithm>
#include <optional>
#include <pqxx/pqxx>
#include <string_view>
#include <unordered_map>

#include "ledger/database.h"

namespace baton::ledger {
namespace {

// Of the lock that writing transactions hold, among the other locks of the server.
constexpr const char* kWriteLock = "SELECT pg_advisory_xact_lock(4710337401)";

// The longest that a statement may take, and a vacuum.
constexpr const char* kStatement_ms = "60000";
constexpr const char* kVacuum_ms = "5000";

class PostgresRow final : public Row {
 public:
  explicit PostgresRow(const pqxx::row& row) : row_(row) {}
  int64_t Int(int column) const override { return row_[column].as<int64_t>(); }
  Int128 Wide(int column) const override { return ParseSum(row_[column].c_str()); }
  double Real(int column) const override { return row_[column].as<double>(); }
  std::string Text(int column) const override { return row_[column].c_str(); }
  std::string Bytes(int column) const override { return pqxx::binarystring(row_[column]).str(); }

 private:
  const pqxx::row& row_;
};

// Without these a server that is cut off holds the ledger's thread for minutes.
std::string WithTimeouts(std::string connection) {
  const bool uri = connection.starts_with("postgres");
  for (const char* option : {"connect_timeout=5", "tcp_user_timeout=15000"}) {
    const std::string name(option, std::string_view(option).find('='));
    if (connection.find(name) != std::string::npos) continue;
    if (uri) {
      connection += connection.find('?') == std::string::npos ? '?' : '&';
    } else {
      connection += ' ';
    }
    connection += option;
  }
  return connection;
}

std::string Hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "\\x";
  text.reserve(2 + 2 * bytes.size());
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

std::string Text(const Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  if (const auto* real = std::get_if<double>(&value)) return pqxx::to_string(*real);
  if (const auto* text = std::get_if<std::string_view>(&value)) return std::string(*text);
  return Hex(std::get<Blob>(value).bytes);
}

// libpq's messages have several lines, with tabs.
std::string OneLine(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const size_t begin = part.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) continue;
    const size_t end = part.find_last_not_of(" \t\r") + 1;
    line += line.empty() ? "" : "; ";
    line += part.substr(begin, end - begin);
  }
  return line;
}

class PostgresDatabase final : public Database {
 public:
  explicit PostgresDatabase(std::string connection)
      : options_(WithTimeouts(std::move(connection))) {}

  bool Connect() override {
    if (connection_ && connection_->is_open()) return false;
    Disconnect();
    Guard([&] {
      connection_.emplace(options_);
      // As with SQLite: a server that crashes may lose the last batches, each of them wholly, and
      // the next one brings what they said.
      connection_->set_variable("synchronous_commit", "off");
      connection_->set_variable("statement_timeout", kStatement_ms);
      connection_->set_variable("client_min_messages", "warning");
      connection_->set_variable("search_path", "baton");
      // Compiling a question takes longer than answering it.
      connection_->set_variable("jit", "off");
      // The sums of a year of a large cluster stay in memory.
      connection_->set_variable("work_mem", "'64MB'");
      connection_->set_client_encoding("UTF8");
      pqxx::work work(*connection_);
      // Asked first: who may not make schemas may still use this one.
      if (work.exec("SELECT 1 FROM pg_namespace WHERE nspname = 'baton'").empty()) {
        work.exec("CREATE SCHEMA IF NOT EXISTS baton");
      }
      work.commit();
    });
    return true;
  }

  void Disconnect() noexcept override {
    statements_.clear();
    transaction_.reset();
    connection_.reset();
  }

  void Begin(Access access) override {
    Guard([&] {
      transaction_.emplace(*connection_);
      transaction_->exec(access == Access::kWrite
                             ? kWriteLock
                             : "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY");
    });
  }
  void Commit() override {
    Guard([&] { transaction_->commit(); });
    transaction_.reset();
  }
  void Rollback() noexcept override { transaction_.reset(); }

  void Run(const std::string& sql, const std::vector<Value>& values,
           const std::function<void(const Row&)>& each) override {
    Guard([&] {
      auto it = statements_.find(sql);
      if (it == statements_.end()) {
        if (statements_.size() >= kStatementsMax) {
          for (const auto& [text, name] : statements_) connection_->unprepare(name);
          statements_.clear();
        }
        it = statements_.try_emplace(sql, "baton_" + std::to_string(++prepared_)).first;
        connection_->prepare(it->second, sql);
      }
      std::vector<std::string> texts;
      texts.reserve(values.size());
      for (const Value& value : values) texts.push_back(Text(value));
      const pqxx::result result =
          transaction_->exec_prepared(it->second, pqxx::prepare::make_dynamic_params(texts));
      if (!each) return;
      for (const pqxx::row& row : result) each(PostgresRow(row));
    });
  }

  // NUMERIC, without end. As a text it has no exponent and, of whole numbers, no point.
  std::string SumOf(const std::string& column) const override {
    return "COALESCE(SUM(" + column + "), 0)";
  }

  std::vector<std::string> Tables() override {
    std::vector<std::string> names;
    Run("SELECT table_name FROM information_schema.tables WHERE table_schema = 'baton'", {},
        [&](const Row& row) { names.push_back(row.Text(0)); });
    return names;
  }
  // Room in each page, so that a row that changes stays in it and no index is touched.
  const char* clustered() const override { return "WITH (fillfactor = 50)"; }
  const char* blob() const override { return "BYTEA"; }
  bool packs() const override { return true; }
  // For some seconds at most, as nothing is booked meanwhile. What is left then, of a large table
  // that was never looked at, the server comes by for.
  void Vacuum(const std::string& table) override {
    Guard([&] {
      pqxx::nontransaction work(*connection_);
      work.exec(std::string("SET statement_timeout = ") + kVacuum_ms);
      try {
        work.exec("VACUUM " + table);
      } catch (const pqxx::sql_error& e) {
        if (e.sqlstate() != "57014") throw;  // the timeout
      }
      work.exec(std::string("SET statement_timeout = ") + kStatement_ms);
    });
  }
  int64_t SizeBytes() override {
    int64_t bytes = 0;
    Run("SELECT COALESCE(SUM(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_namespace n"
        " ON n.oid = c.relnamespace WHERE n.nspname = 'baton' AND c.relkind = 'r'",
        {}, [&](const Row& row) { bytes = row.Int(0); });
    return bytes;
  }
  // Its administrator's.
  std::string MoveAside() override { return {}; }

 private:
  template <class F>
  void Guard(const F& f) {
    const auto fail = [](ErrorCode code, const char* what) {
      throw DatabaseError(code, "the ledger's PostgreSQL server: " + OneLine(what));
    };
    try {
      f();
    } catch (const pqxx::broken_connection& e) {
      fail(ErrorCode::kUnavailable, e.what());
    } catch (const pqxx::in_doubt_error& e) {
      fail(ErrorCode::kUnavailable, e.what());
    } catch (const pqxx::sql_error& e) {
      const std::string& state = e.sqlstate();
      // Connections, resources, operators' doings, locks, rolled back, read-only; none at all where
      // the connection was lost in the middle.
      const std::string kind = state.substr(0, 2);
      const bool away = state.empty() || kind == "08" || kind == "53" || kind == "57" ||
                        kind == "55" || kind == "40" || kind == "58" || state == "25006";
      fail(away ? ErrorCode::kUnavailable : ErrorCode::kInternal, e.what());
    } catch (const pqxx::failure& e) {
      fail(ErrorCode::kUnavailable, e.what());
    } catch (const DatabaseError&) {
      throw;
    } catch (const std::logic_error& e) {
      fail(ErrorCode::kInternal, e.what());
    } catch (const pqxx::pqxx_exception& e) {
      fail(ErrorCode::kInternal, e.base().what());
    }
  }

  const std::string options_;
  std::optional<pqxx::connection> connection_;
  std::optional<pqxx::work> transaction_;
  std::unordered_map<std::string, std::string> statements_;
  uint64_t prepared_ = 0;
};

}  // namespace

Result<void> CheckPostgres(const std::string& connection) {
  char* what = nullptr;
  PQconninfoOption* const options = PQconninfoParse(connection.c_str(), &what);
  PQconninfoFree(options);
  const std::string text = what == nullptr ? "not understood" : OneLine(what);
  PQfreemem(what);
  if (options != nullptr) return {};
  return Fail(ErrorCode::kInvalid, text);
}

std::unique_ptr<Database> MakePostgres(std::string connection) {
  return std::make_unique<PostgresDatabase>(std::move(connection));
}

}  // namespace baton::ledger
