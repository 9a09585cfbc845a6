#include "backend/start_check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "base/file.h"
#include "node/gpu_lock.h"
#include "tests/backend/daemon_process.h"

namespace baton::backend {
namespace {

class StartCheck : public testing::Test {
 protected:
  // A configuration that starts, and `more`.
  std::string Complaints(const std::string& more, bool machine = true,
                         const std::string& server = "") {
    const std::string text = fmt::format(
        "[server]\nlock_dir = \"{0}/lock\"\n{1}{2}\n[[gpu]]\nuuid = \"GPU-a\"\n{3}", folder_ / "",
        server.find("socket_dir") == std::string::npos
            ? fmt::format("socket_dir = \"{}\"\n", folder_ / "run")
            : "",
        server.find("state_dir") == std::string::npos
            ? fmt::format("state_dir = \"{}\"\n{}", folder_ / "state", server)
            : server,
        more.find("[http]") == std::string::npos ? "[http]\nlisten = \"127.0.0.1:0\"\n" + more
                                                 : more);
    const auto options = config::ParseOptions(text, "batond.toml");
    EXPECT_TRUE(options) << options.error().message << "\n" << text;
    if (!options) return "";
    std::string all;
    for (const Error& error : CheckStart(*options, machine)) all += error.message + "\n";
    return all;
  }
  void Says(const std::string& part, const std::string& more, const std::string& server = "") {
    const std::string said = Complaints(more, true, server);
    EXPECT_NE(said.find(part), std::string::npos) << more << server << "\nsaid: " << said;
  }
  std::string File(const std::string& name, const std::string& text, mode_t mode = 0600) {
    WriteText(folder_ / name, text);
    chmod((folder_ / name).c_str(), mode);
    return folder_ / name;
  }

  const TempFolder folder_;
};

TEST_F(StartCheck, WhatStartsIsFine) {
  EXPECT_EQ(Complaints("[[pod]]\nname = \"a\"\nrequest = 60\ngpus = [0]\n"
                       "[[pod]]\nname = \"b\"\nrequest = 40\ngpus = [\"GPU-a\"]\n"),
            "");
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "")) << "it made something";
}

TEST_F(StartCheck, FoldersThatCannotBeMade) {
  File("file", "");
  const auto is = [&](const char* key) {
    return fmt::format("{} = \"{}/below\"\n", key, folder_ / "file");
  };
  Says("server.state_dir: ", "", is("state_dir"));
  Says("server.socket_dir: ", "", is("socket_dir"));
  Says("server.control_dir: ", "", is("control_dir"));
  Says("longer than 107 characters", "",
       fmt::format("socket_dir = \"{}/{}\"\n", folder_ / "", std::string(120, 'x')));
  std::filesystem::create_directory(folder_ / "lock");
  chmod((folder_ / "lock").c_str(), 0777);
  Says("server.lock_dir: cannot keep locks", "");
}

// Its files are left alone, so batond would not start.
TEST_F(StartCheck, StateThatANewerVersionWrote) {
  std::filesystem::create_directory(folder_ / "state");
  const std::string journal = "baton pods journal 2 1\n", holder = "baton holder 3\n";
  for (const auto& [name, text] :
       std::map<std::string, std::string>{{"pods.json", "baton pods 3 7\n"},
                                          {"pods.journal-1", journal},
                                          {"usage", "baton usage 4\n" + std::string(70'000, 'x')},
                                          {"gpu-nodes.json", "baton gpu nodes 2 0\n"},
                                          {"gpu-GPU-a.holder", holder + std::string(1'000, 'x')},
                                          {"gpu-GPU-a.next", holder + std::string(1'000, 'x')}}) {
    const std::string path = File("state/" + name, text);
    Says("server.state_dir: " + path + ": a newer version of Baton wrote it", "");
    File("state/" + name, "damaged, which a start puts aside");
    EXPECT_EQ(Complaints(""), "") << name;
    std::filesystem::remove(path);
  }
  std::filesystem::create_directory(folder_ / "state/pods.json");
  Says("cannot read " + (folder_ / "state/pods.json"), "");
}

TEST_F(StartCheck, FilesThatCannotBeRead) {
  const std::string open = File("open", "0123456789abcdef\n", 0644);
  const std::string secret = File("secret", "0123456789abcdef\n");
  const auto http = [&](const std::string& token, const std::string& certificate) {
    return fmt::format(
        "[http]\nlisten = \"127.0.0.1:0\"\ntoken_file = \"{}\"\n{}", token,
        certificate.empty()
            ? ""
            : fmt::format("certificate_file = \"{}\"\nkey_file = \"{}\"\n", certificate, secret));
  };
  Says("[http]: cannot open /nowhere", http("/nowhere", ""));
  Says("can be read by others", http(open, ""));
  Says("/nowhere", http(secret, "/nowhere"));
  Says("[http]: ", http(secret, open));  // no certificate
  Says("placement.mig_templates: ", "[placement]\nmig_templates = \"/nowhere\"\n");
  Says("teams.file: ", "[teams]\nfile = \"/nowhere\"\n");
  Says(":1: ", fmt::format("[teams]\nfile = \"{}\"\n", File("teams", "teems = 1\n")));
  Says("zmq.secret_key_file: ",
       "[zmq]\nlisten = \"tcp://127.0.0.1:*\"\nsecret_key_file = \"/nowhere\"\n[zmq.nodes]\n"
       "a = \"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\"\n");
}

TEST_F(StartCheck, TheLedgersAddress) {
  Says("ledger.database: [ledger] database must be", "[ledger]\ndatabase = \"mysql://a\"\n");
  Says("ledger.database: ", "[ledger]\ndatabase = \"postgresql://host?prot=1\"\n");
  Says("there is no folder /nowhere/", "[ledger]\ndatabase = \"sqlite:/nowhere/ledger\"\n");
  Says("keeps finer figures longer", "[ledger]\nkeep_fine = \"1000h\"\n");
}

TEST_F(StartCheck, AddressesThatAreTakenOrMalformed) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(fd.get(), any, size), 0);
  ASSERT_EQ(listen(fd.get(), 1), 0);
  ASSERT_EQ(getsockname(fd.get(), any, &size), 0);
  const int port = ntohs(address.sin_port);
  Says("http.listen: cannot listen", fmt::format("[http]\nlisten = \"127.0.0.1:{}\"\n", port));
  Says("zmq.listen: ", fmt::format("[zmq]\nlisten = \"tcp://127.0.0.1:{}\"\n", port));
  Says("upstream.connect: ", "[upstream]\nconnect = \"tcp://127.0.0.1:*\"\n");
  // What was free is free again.
  const std::string free = fmt::format("127.0.0.1:{}", FreePort());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Complaints(fmt::format("[http]\nlisten = \"{}\"\n", free)), "");
    EXPECT_EQ(Complaints(fmt::format("[zmq]\nlisten = \"tcp://{}\"\n", free)), "");
  }
}

TEST_F(StartCheck, WhatAnotherDaemonHas) {
  std::filesystem::create_directory(folder_ / "state");
  const UniqueFd state(open(File("state/lock", "").c_str(), O_RDWR));
  ASSERT_EQ(flock(state.get(), LOCK_EX), 0);
  const auto gpu = node::LockGpu(folder_ / "lock", "GPU-a");
  ASSERT_TRUE(gpu) << gpu.error().message;
  Says("server.state_dir: another batond uses ", "");
  Says("server.lock_dir: another daemon already manages GPU-a", "");
}

TEST_F(StartCheck, PodsThatTheirGpusOrTeamsCannotHave) {
  Says("[[pod]] a: no GPU 1 here; there are 1",
       "[[pod]]\nname = \"a\"\nrequest = 10\ngpus = [1]\n");
  Says(
      "[[pod]] b: with it the requests on GPU GPU-a add up to 110 %, and scheduler.overcommit "
      "allows 100 %",
      "[[pod]]\nname = \"a\"\nrequest = 60\ngpus = [0]\n[[pod]]\nname = \"b\"\nrequest = 50\n"
      "gpus = [0]\n[[pod]]\nname = \"c\"\nrequest = 10\ngpus = [0]\n");
  const std::string teams =
      fmt::format("[teams]\nfile = \"{}\"\nunknown = \"refuse\"\n",
                  File("teams", "[[team]]\nname = \"research\"\nlimit = 0.5\n"));
  Says("[[pod]] a: ", teams + "[[pod]]\nname = \"a\"\nrequest = 60\nteam = \"research\"\n");
  Says("[[pod]] a: ", teams + "[[pod]]\nname = \"a\"\nrequest = 10\nteam = \"reserach\"\n");
}

TEST_F(StartCheck, OfTheFileAloneNothingOfThisMachineCounts) {
  const std::string more =
      "[http]\nlisten = \"127.0.0.1:1\"\ntoken_file = \"/nowhere\"\n[teams]\nfile = \"/nowhere\"\n"
      "[[pod]]\nname = \"a\"\nrequest = 10\ngpus = [7]\n";
  EXPECT_NE(Complaints(more), "");
  EXPECT_EQ(Complaints(more, false), "");
  EXPECT_NE(Complaints("[ledger]\ndatabase = \"mysql://a\"\n", false), "");
}

}  // namespace
}  // namespace baton::backend
