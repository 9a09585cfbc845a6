// A PostgreSQL server of the tests' own: in a temporary folder, reached through a unix socket only,
// gone with this object or this process.
#ifndef BATON_TESTS_LEDGER_POSTGRES_SERVER_H_
#define BATON_TESTS_LEDGER_POSTGRES_SERVER_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "base/result.h"

namespace baton::ledger {

class PostgresServer {
 public:
  // kNotFound: PostgreSQL 15 is not installed here. As root it runs as user postgres.
  static Result<std::unique_ptr<PostgresServer>> Start();
  ~PostgresServer();
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;

  // For [ledger] database.
  std::string uri() const;
  // Ends it as a crash would, at once. Up() starts it again; false when it does not come.
  void Crash();
  bool Up();

 private:
  PostgresServer() = default;
  std::string folder_;
  pid_t pid_ = -1;
};

}  // namespace baton::ledger

#endif  // BATON_TESTS_LEDGER_POSTGRES_SERVER_H_
