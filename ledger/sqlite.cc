#include <SQLiteCpp/Column.h>
#include <SQLiteCpp/Database.h>
#include <SQLiteCpp/Statement.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "ledger/database.h"

namespace baton::ledger {
namespace {

constexpr int kBusyTimeout_ms = 5000;
// A file up to this size is looked through when it is opened (a fifth of a second).
constexpr int64_t kCheckMax = 64 << 20;
constexpr int kAsideMax = 9;

// The aggregate sum_exactly(x), of whole numbers and of its own results. SQLite's own SUM() fails
// beyond 64 bits. A result that fits is a number, a larger one a text.
//
// The memory that SQLite keeps between two calls is zero at first, and not aligned for an Int128.
Int128 SumIn(const void* memory) {
  Int128 sum = 0;
  if (memory != nullptr) std::memcpy(&sum, memory, sizeof sum);
  return sum;
}

void AddExactly(sqlite3_context* context, int, sqlite3_value** values) {
  void* memory = sqlite3_aggregate_context(context, sizeof(Int128));
  if (memory == nullptr) return sqlite3_result_error_nomem(context);
  Int128 more = 0;
  switch (sqlite3_value_type(values[0])) {
    case SQLITE_INTEGER:
      more = sqlite3_value_int64(values[0]);
      break;
    case SQLITE_TEXT:
      more = ParseSum(reinterpret_cast<const char*>(sqlite3_value_text(values[0])));
      break;
    default:
      return;
  }
  Int128 sum = SumIn(memory);
  // Nobody's books are that large; those of who lies end there.
  if (__builtin_add_overflow(sum, more, &sum)) return;
  std::memcpy(memory, &sum, sizeof sum);
}

void ResultExactly(sqlite3_context* context) {
  const Int128 sum = SumIn(sqlite3_aggregate_context(context, 0));
  if (const auto narrow = static_cast<int64_t>(sum); narrow == sum) {
    sqlite3_result_int64(context, narrow);
  } else {
    const std::string text = FormatSum(sum);
    sqlite3_result_text(context, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
  }
}

class SqliteRow final : public Row {
 public:
  explicit SqliteRow(SQLite::Statement& statement) : statement_(statement) {}
  int64_t Int(int column) const override { return statement_.getColumn(column).getInt64(); }
  Int128 Wide(int column) const override {
    const SQLite::Column found = statement_.getColumn(column);
    return found.isInteger() ? Int128{found.getInt64()} : ParseSum(found.getString());
  }
  double Real(int column) const override { return statement_.getColumn(column).getDouble(); }
  std::string Text(int column) const override { return statement_.getColumn(column).getString(); }
  std::string Bytes(int column) const override { return Text(column); }

 private:
  SQLite::Statement& statement_;
};

// Which file it is, wherever its name is now.
struct Inode {
  dev_t device = 0;
  ino_t number = 0;
  bool operator==(const Inode&) const = default;
};

Inode InodeOf(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return {};
  return {st.st_dev, st.st_ino};
}

int64_t SizeOf(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 ? static_cast<int64_t>(st.st_size) : 0;
}

// Connections of one process make and open the file one after the other: of two that change it to
// a write-ahead log at once, one fails. And they may meet the same damage; one moves the file.
std::mutex& FileMutex() {
  static std::mutex mutex;
  return mutex;
}

class SqliteDatabase final : public Database {
 public:
  explicit SqliteDatabase(std::string path) : path_(std::move(path)) {}

  bool Connect() override {
    if (database_ && InodeOf(path_) == inode_) return false;
    const std::lock_guard lock(FileMutex());
    replaced_ = database_.has_value();
    Disconnect();
    // SQLite would let others read it. One that is there is not opened here: to close it again
    // would take away all locks that this process has on it, and whoever looks at it with sqlite3
    // would remove the log that is being written.
    const bool is_there = access(path_.c_str(), F_OK) == 0;
    const int fd = is_there ? -1 : open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
      close(fd);
    } else if (!is_there || access(path_.c_str(), R_OK | W_OK) != 0) {
      throw DatabaseError(ErrorCode::kUnavailable,
                          "cannot open the ledger " + path_ + ": " + strerror(errno) +
                              "; check [ledger] database and that its folder can be written");
    }
    inode_ = InodeOf(path_);
    Guard([&] {
      database_.emplace(path_, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE, kBusyTimeout_ms);
      // A commit is not synced: after a power cut the last batches may be gone, each of them
      // wholly, and the next one brings what they said.
      database_->exec(
          "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA secure_delete = OFF;"
          "PRAGMA cache_size = -16384; PRAGMA journal_size_limit = 67108864;"
          "PRAGMA temp_store = MEMORY;");
      const int made = sqlite3_create_function_v2(database_->getHandle(), "sum_exactly", 1,
                                                  SQLITE_UTF8 | SQLITE_DETERMINISTIC, nullptr,
                                                  nullptr, AddExactly, ResultExactly, nullptr);
      if (made != SQLITE_OK) throw SQLite::Exception(database_->getHandle(), made);
      if (SizeOf(path_) > kCheckMax) return;
      const std::string found = database_->execAndGet("PRAGMA quick_check(1)").getString();
      if (found != "ok") {
        throw DatabaseError(ErrorCode::kUnavailable, path_ + " is damaged (" + found + ")", true);
      }
    });
    return true;
  }

  bool replaced() const override { return replaced_; }

  void Disconnect() noexcept override {
    statements_.clear();
    database_.reset();
  }

  void Begin(Access access) override {
    Guard([&] { database_->exec(access == Access::kWrite ? "BEGIN IMMEDIATE" : "BEGIN"); });
  }
  void Commit() override {
    Guard([&] { database_->exec("COMMIT"); });
  }
  void Rollback() noexcept override {
    if (database_) database_->tryExec("ROLLBACK");  // SQLite may have done so by itself
  }

  void Run(const std::string& sql, const std::vector<Value>& values,
           const std::function<void(const Row&)>& each) override {
    Guard([&] {
      auto it = statements_.find(sql);
      if (it == statements_.end()) {
        if (statements_.size() >= kStatementsMax) statements_.clear();
        it = statements_.try_emplace(sql, *database_, Numbered(sql)).first;
      }
      SQLite::Statement& statement = it->second;
      const Resetting resetting{statement};
      for (size_t i = 0; i < values.size(); ++i) {
        Bind(statement, static_cast<int>(i) + 1, values[i]);
      }
      const SqliteRow row(statement);
      while (statement.executeStep()) {
        if (each) each(row);
      }
    });
  }

  std::string SumOf(const std::string& column) const override {
    return "sum_exactly(" + column + ")";
  }

  std::vector<std::string> Tables() override {
    std::vector<std::string> names;
    Run("SELECT name FROM sqlite_master WHERE type = 'table'", {},
        [&](const Row& row) { names.push_back(row.Text(0)); });
    return names;
  }
  const char* clustered() const override { return "WITHOUT ROWID"; }
  const char* blob() const override { return "BLOB"; }
  int64_t SizeBytes() override { return SizeOf(path_) + SizeOf(path_ + "-wal"); }

  std::string MoveAside() override {
    const std::lock_guard lock(FileMutex());
    const bool moved_by_another = InodeOf(path_) != inode_;
    Disconnect();
    if (moved_by_another) return path_ + ".damaged";
    std::string aside = path_ + ".damaged";
    for (int n = 2; n <= kAsideMax && SizeOf(aside) != 0; ++n) {
      aside = path_ + ".damaged-" + std::to_string(n);
    }
    std::error_code error;
    std::filesystem::rename(path_, aside, error);
    if (error) return {};
    // Of the log that belongs to it nothing may reach the new file.
    std::filesystem::rename(path_ + "-wal", aside + "-wal", error);
    std::filesystem::remove(path_ + "-shm", error);
    return aside;
  }

 private:
  struct Resetting {
    SQLite::Statement& statement;
    ~Resetting() { statement.tryReset(); }
  };

  // SQLite takes $1 for a name, and numbers names as they come; ?1 is number 1 wherever it stands.
  static std::string Numbered(std::string sql) {
    for (size_t i = 0; i + 1 < sql.size(); ++i) {
      if (sql[i] == '$' && std::isdigit(static_cast<unsigned char>(sql[i + 1])) != 0) sql[i] = '?';
    }
    return sql;
  }

  static void Bind(SQLite::Statement& statement, int at, const Value& value) {
    if (const auto* number = std::get_if<int64_t>(&value)) {
      statement.bind(at, *number);
    } else if (const auto* real = std::get_if<double>(&value)) {
      statement.bind(at, *real);
    } else if (const auto* text = std::get_if<std::string_view>(&value)) {
      statement.bind(at, std::string(*text));
    } else {
      const std::string_view bytes = std::get<Blob>(value).bytes;
      statement.bind(at, static_cast<const void*>(bytes.data()), static_cast<int>(bytes.size()));
    }
  }

  template <class F>
  void Guard(const F& f) {
    try {
      f();
    } catch (const SQLite::Exception& e) {
      Fail(e.getErrorCode(), e.what());
    }
  }

  [[noreturn]] void Fail(int code, const std::string& what) const {
    switch (code & 0xff) {
      case SQLITE_CORRUPT:
      case SQLITE_NOTADB:
        throw DatabaseError(ErrorCode::kUnavailable, path_ + " is damaged (" + what + ")", true);
      case SQLITE_FULL:
        throw DatabaseError(ErrorCode::kUnavailable,
                            "no room for the ledger " + path_ + " (" + what +
                                "); make room on its disk, and what is missing is booked then");
      case SQLITE_BUSY:
      case SQLITE_LOCKED:
        throw DatabaseError(ErrorCode::kUnavailable,
                            "the ledger " + path_ + " is locked by another process (" + what + ")");
      case SQLITE_IOERR:
      case SQLITE_CANTOPEN:
      case SQLITE_READONLY:
      case SQLITE_PERM:
      case SQLITE_AUTH:
      case SQLITE_PROTOCOL:
        throw DatabaseError(ErrorCode::kUnavailable, "the ledger " + path_ +
                                                         " cannot be read or written (" + what +
                                                         "); check its disk and its permissions");
      default:
        throw DatabaseError(ErrorCode::kInternal, "the ledger " + path_ + ": " + what);
    }
  }

  const std::string path_;
  std::optional<SQLite::Database> database_;
  Inode inode_;
  bool replaced_ = false;
  std::unordered_map<std::string, SQLite::Statement> statements_;
};

}  // namespace

std::unique_ptr<Database> MakeSqlite(std::string path) {
  return std::make_unique<SqliteDatabase>(std::move(path));
}

}  // namespace baton::ledger
