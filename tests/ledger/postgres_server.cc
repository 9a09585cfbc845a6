#include "tests/ledger/postgres_server.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

namespace baton::ledger {
namespace {

const char* const kPrograms = "/usr/lib/postgresql/15/bin/";

// As user postgres where this is root, which PostgreSQL refuses to run as. Dies with its parent.
pid_t Spawn(const std::vector<std::string>& command, const std::string& log) {
  const passwd* user = geteuid() == 0 ? getpwnam("postgres") : nullptr;
  const uid_t uid = user != nullptr ? user->pw_uid : geteuid();
  const gid_t gid = user != nullptr ? user->pw_gid : getegid();
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
  if (user != nullptr && (setgroups(0, nullptr) != 0 || setgid(gid) != 0 || setuid(uid) != 0)) {
    _exit(126);
  }
  prctl(PR_SET_PDEATHSIG, SIGQUIT);
  execv(arguments[0], arguments.data());
  _exit(127);
}

int Wait(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

}  // namespace

Result<std::unique_ptr<PostgresServer>> PostgresServer::Start() {
  if (access((std::string(kPrograms) + "postgres").c_str(), X_OK) != 0 ||
      (geteuid() == 0 && getpwnam("postgres") == nullptr)) {
    return Fail(
        ErrorCode::kNotFound,
        "PostgreSQL 15 is not installed; scripts/setup does, or 'apt-get install postgresql'");
  }
  char folder[] = "/tmp/baton-postgres-XXXXXX";
  if (mkdtemp(folder) == nullptr) return Fail(ErrorCode::kInternal, "no temporary folder");
  std::unique_ptr<PostgresServer> server(new PostgresServer);
  server->folder_ = folder;
  if (geteuid() == 0) {
    const passwd* user = getpwnam("postgres");
    if (chown(folder, user->pw_uid, user->pw_gid) != 0) {
      return Fail(ErrorCode::kInternal, "cannot give away the folder");
    }
  }
  const pid_t init = Spawn({std::string(kPrograms) + "initdb", "-D", server->folder_ + "/data",
                            "--no-sync", "-U", "baton", "-A", "trust", "-E", "UTF8"},
                           server->folder_ + "/initdb.log");
  if (Wait(init) != 0 || !server->Up()) {
    return Fail(ErrorCode::kInternal, "PostgreSQL does not start; see " + server->folder_);
  }
  return server;
}

PostgresServer::~PostgresServer() {
  Crash();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string PostgresServer::uri() const { return "postgresql://baton@/postgres?host=" + folder_; }

void PostgresServer::Crash() {
  if (pid_ < 0) return;
  kill(pid_, SIGQUIT);
  Wait(pid_);
  pid_ = -1;
}

bool PostgresServer::Up() {
  pid_ = Spawn({std::string(kPrograms) + "postgres", "-D", folder_ + "/data", "-k", folder_, "-h",
                "", "-c", "fsync=off", "-c", "shared_buffers=64MB"},
               folder_ + "/log");
  for (int attempt = 0; attempt < 600; ++attempt) {
    const std::string check = std::string(kPrograms) + "pg_isready -q -h " + folder_;
    if (system(check.c_str()) == 0) return true;
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return false;
    }
    usleep(50'000);
  }
  return false;
}

}  // namespace baton::ledger
