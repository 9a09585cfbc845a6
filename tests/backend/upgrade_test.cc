// The state folder that the version before left behind is taken over: pods, tickets, accounts, and
// who may be granted what. The folder tests/backend/before/ is such a folder, as that version wrote
// it; with BATON_UPDATE=PROGRAM it is written anew by that batond, and by its clients here.
#include <cstdlib>

#include "tests/backend/batond_fixture.h"

namespace baton::backend {
namespace {

namespace fs = std::filesystem;

const std::string kBefore = BATON_SOURCE "/tests/backend/before";
// Files of the folder: the others are made anew when they are missing.
const std::set<std::string> kKept{"pods.json", "usage", "gpu-GPU-a.holder"};

// Fields of a pod's status that a new daemon must tell as the old one did.
json Lasting(const json& pod) {
  json lasting;
  for (const char* key :
       {"name", "request", "limit", "memory", "memory_cap", "priority", "team", "user", "namespace",
        "independent", "held_ns", "busy_ns", "launches", "waited_ns", "grants"}) {
    if (pod.contains(key)) lasting[key] = pod.at(key);
  }
  return lasting;
}

class Upgrade : public Batond {
 protected:
  void SetUp() override { Configure("[ledger]\ndatabase = \"none\"\n"); }
  json Pods() {
    json pods = json::array();
    const json status = Status();
    for (const json& pod : status.at("pods")) pods.push_back(Lasting(pod));
    return pods;
  }
  // Pods with every field, and work of one of them, by the batond of before.
  void WriteBefore(const std::string& program) {
    DaemonProcess before(program, folder_ / "batond.toml", folder_ / "before.log");
    ASSERT_TRUE(before.Start()) << before.Log();
    Pod("train", 50, {{"ticket", "ticket-of-train"}, {"team", "research/vision"}, {"user", "ada"}});
    Pod("chat", 10,
        {{"ticket", "ticket-of-chat"}, {"limit", 20}, {"priority", "high"}, {"memory", 1 << 30}});
    Pod("gang", 20,
        {{"ticket", "ticket-of-gang"}, {"gpus", {"GPU-a", "GPU-b"}}, {"namespace", "ml"}});
    ScriptedClient train(Socket());
    ASSERT_TRUE(train.Join("ticket-of-train", "GPU-a"));
    for (int hold = 1; hold <= 3; ++hold) {
      ASSERT_TRUE(train.AskUntilGranted() && train.Report(Phase::kHolding));
      poll(nullptr, 0, 20);
      train.state.launches += 7;
      train.state.busy_ns += 5'000'000;
      train.state.held_ns += 20'000'000;
      ASSERT_TRUE(GivesBack(train, "train"));
    }
    WriteText(kBefore + "/status.json", Pods().dump(1) + "\n");
    WriteText(kBefore + "/epoch", std::to_string(train.state.epoch) + "\n");
    EXPECT_EQ(before.Stop(), 0);
    for (const std::string& name : kKept) {
      fs::copy_file(folder_ / ("state/" + name), kBefore + "/" + name,
                    fs::copy_options::overwrite_existing);
    }
  }
};

TEST_F(Upgrade, TakesOverTheStateOfTheVersionBefore) {
  if (const char* program = std::getenv("BATON_UPDATE")) {
    WriteBefore(program);
    fs::remove_all(folder_ / "state");
  }
  fs::create_directories(folder_ / "state");
  for (const std::string& name : kKept) {
    fs::copy_file(kBefore + "/" + name, folder_ / ("state/" + name));
  }
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_EQ(Pods(), json::parse(ReadText(kBefore + "/status.json"))) << daemon_.Log();
  // The version before refuses the state from here on: it would miss what is in the journals.
  EXPECT_TRUE(ReadText(folder_ / "state/pods.json").starts_with("baton pods 2 "));
  daemon_.Crash();
  ASSERT_TRUE(daemon_.Start()) << daemon_.Log();
  EXPECT_EQ(Degraded(), "[]");
  EXPECT_EQ(Pods(), json::parse(ReadText(kBefore + "/status.json"))) << daemon_.Log();
  // Tickets are good, and no token is older than one that was given out.
  ScriptedClient train(Socket()), chat(Socket(), 2);
  ASSERT_TRUE(train.Join("ticket-of-train", "GPU-a") && chat.Join("ticket-of-chat", "GPU-a"));
  ASSERT_TRUE(train.AskUntilGranted());
  EXPECT_GT(train.state.epoch, std::stoull(ReadText(kBefore + "/epoch")));
  ASSERT_TRUE(GivesBack(train, "train"));
  EXPECT_TRUE(chat.AskUntilGranted());
}

}  // namespace
}  // namespace baton::backend
