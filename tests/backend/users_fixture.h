// batond with user.sock, asked by users of the machine who may open nothing else.
#ifndef BATON_TESTS_BACKEND_USERS_FIXTURE_H_
#define BATON_TESTS_BACKEND_USERS_FIXTURE_H_

#include <grp.h>

#include <functional>
#include <string>

#include "tests/backend/batond_fixture.h"

namespace baton::backend {

inline constexpr uid_t kNobody = 65534;    // of the group nogroup
inline constexpr uid_t kStranger = 12345;  // without a name

class Users : public Batond {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
    chmod(folder_.path().c_str(), 0755);
  }
  bool StartWith(const std::string& users) {
    WriteText(folder_ / "teams.toml",
              "[[team]]\nname = \"lab/vision\"\nlimit = 0.4\n[[team]]\nname = \"lab/speech\"\n");
    Configure("[teams]\nfile = \"" + (folder_ / "teams.toml") + "\"\n[users]\n" + users);
    return daemon_.Start();
  }
  // What a process of the user's writes to the descriptor that `work` is given.
  static std::string As(uid_t uid, const std::function<void(int out)>& work) {
    int answer[2];
    EXPECT_EQ(pipe(answer), 0);
    const pid_t child = fork();
    if (child == 0) {
      if (setgroups(0, nullptr) != 0 || setgid(uid) != 0 || setuid(uid) != 0) _exit(2);
      work(answer[1]);
      _exit(0);
    }
    close(answer[1]);
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(answer[0], buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    close(answer[0]);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    return text;
  }
  // What the user is answered at user.sock; null: the socket was not opened, or nothing was.
  json SayAs(uid_t uid, const json& request, const std::string& socket = "user.sock") {
    const std::string text = As(uid, [&](int out) {
      const std::string said = Ask(folder_ / ("run/" + socket), request).dump();
      if (write(out, said.data(), said.size()) < 0) _exit(2);
    });
    return json::parse(text, nullptr, false);
  }
  // The code with which it is refused; empty: it is not.
  std::string Refused(uid_t uid, json request) {
    const json answer = SayAs(uid, request);
    if (!answer.is_object()) return "no answer";
    return answer.value("ok", false) ? "" : answer.value("code", "?");
  }
  static json Create(const std::string& name, double request, json more = json::object()) {
    more.update({{"command", "create_pod"}, {"name", name}, {"request", request}});
    return more;
  }
};

}  // namespace baton::backend

#endif  // BATON_TESTS_BACKEND_USERS_FIXTURE_H_
