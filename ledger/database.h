// The little of SQL databases that the ledger needs, with two drivers: SQLite and PostgreSQL. The
// SQL is the same for both; placeholders are $1, $2 … in order.
//
// Within the ledger only. Everything here throws DatabaseError and nothing else (but bad_alloc);
// the ledger's public functions catch it. Not thread safe.
#ifndef BATON_LEDGER_DATABASE_H_
#define BATON_LEDGER_DATABASE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "ledger/ledger.h"

namespace baton::ledger {

class DatabaseError : public std::runtime_error {
 public:
  DatabaseError(ErrorCode code, const std::string& message, bool damaged = false)
      : std::runtime_error(message), code(code), damaged(damaged) {}
  ErrorCode code;
  bool damaged;  // the file is no database, or not whole
};

// Bytes that are no text.
struct Blob {
  std::string_view bytes;
};
// What a placeholder stands for. Texts are only looked at during the call.
using Value = std::variant<int64_t, double, std::string_view, Blob>;

// A row of an answer; columns from 0. Valid during the call that passes it.
class Row {
 public:
  virtual int64_t Int(int column) const = 0;
  // Of a column that Database::SumOf() made.
  virtual Int128 Wide(int column) const = 0;
  virtual double Real(int column) const = 0;
  virtual std::string Text(int column) const = 0;
  virtual std::string Bytes(int column) const = 0;

 protected:
  ~Row() = default;
};

// Sums as texts: digits, with a "-" in front of what is below zero. What is no number is 0.
Int128 ParseSum(std::string_view text);
std::string FormatSum(Int128 sum);

// A connection forgets its prepared statements when it has so many.
inline constexpr size_t kStatementsMax = 256;

class Database {
 public:
  enum class Access { kRead, kWrite };
  virtual ~Database() = default;

  // Connects where that is not so, also where the file that was open is not at its path any more.
  // True when a new connection was made: look at the schema before anything else.
  virtual bool Connect() = 0;
  // Whether Connect() found another file where it had one open: somebody removed that.
  virtual bool replaced() const { return false; }
  virtual void Disconnect() noexcept = 0;
  // A transaction. kRead: sees one state of the database throughout. kWrite: the only one that
  // writes; others wait (some seconds) until its end.
  virtual void Begin(Access access) = 0;
  virtual void Commit() = 0;
  // Also where there is none (any more).
  virtual void Rollback() noexcept = 0;
  // Runs one statement, which is kept prepared by its text.
  virtual void Run(const std::string& sql, const std::vector<Value>& values,
                   const std::function<void(const Row&)>& each = nullptr) = 0;

  // The exact sum of a column of whole numbers, or of such sums, as SQL: an aggregate that does not
  // overflow. Row::Wide() reads it.
  virtual std::string SumOf(const std::string& column) const = 0;

  // Names of all tables there.
  virtual std::vector<std::string> Tables() = 0;
  // As the schema writes them: what follows a table's columns when it is clustered by its primary
  // key, and the type of a Blob's column.
  virtual const char* clustered() const = 0;
  virtual const char* blob() const = 0;
  // Whether settled buckets are packed (ledger/settled.h).
  virtual bool packs() const { return false; }
  // Makes the room of a table's deleted rows free for new ones, and gives back what is at its end.
  // Outside a transaction.
  virtual void Vacuum(const std::string& /*table*/) {}
  // Of what is on disk, in bytes.
  virtual int64_t SizeBytes() = 0;
  // Puts a damaged database aside and says where it is now; empty where that is not for us to do.
  // The next Connect() makes a new one.
  virtual std::string MoveAside() = 0;
};

std::unique_ptr<Database> MakeSqlite(std::string path);
// `connection`: a URI or "key=value" words, as libpq takes them. All tables are in its schema
// "baton", which is made when absent.
std::unique_ptr<Database> MakePostgres(std::string connection);
// Whether libpq understands the connection; asks no server. kInvalid.
Result<void> CheckPostgres(const std::string& connection);

// A transaction that is rolled back unless it is committed.
class Transaction {
 public:
  Transaction(Database& database, Database::Access access) : database_(database) {
    database_.Begin(access);
  }
  ~Transaction() {
    if (open_) database_.Rollback();
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void Commit() {
    database_.Commit();
    open_ = false;
  }

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace baton::ledger

#endif  // BATON_LEDGER_DATABASE_H_
