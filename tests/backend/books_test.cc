// batond's books as people meet them: asked over the control socket of a real daemon, with clients,
// nodes and central ones that say exactly what a test wants.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "backend/ledger/ledger.h"
#include "tests/backend/daemon_process.h"
#include "tests/backend/scripted_client.h"

namespace baton::backend {
namespace {

using nlohmann::json;

const std::string kSource(32, 'a');

class KeptBooks : public testing::Test {
 protected:
  // `ledger`: lines of that table. `more`: whole tables.
  void Configure(const std::string& more = "", const std::string& ledger = "every = \"100ms\"") {
    WriteText(folder_ / "batond.toml",
              "[server]\nsocket_dir = \"" + (folder_ / "run") + "\"\nstate_dir = \"" +
                  (folder_ / "state") + "\"\nlock_dir = \"" + (folder_ / "lock") +
                  "\"\n[scheduler]\ndrain_timeout = \"60s\"\n[http]\nlisten = \"\"\n[ledger]\n" +
                  ledger + "\n" + more +
                  "\n[[gpu]]\nuuid = \"GPU-a\"\nmemory = \"1GiB\"\n[[gpu]]\nuuid = \"GPU-b\"\n");
  }
  void Start() { ASSERT_TRUE(daemon_.Start()) << daemon_.Log(); }
  void Restart() {
    EXPECT_EQ(daemon_.Stop(), 0) << daemon_.Log();
    Start();
  }
  std::string Teams(const std::string& text) {
    WriteText(folder_ / "teams.toml", text);
    return "[teams]\nfile = \"" + (folder_ / "teams.toml") + "\"\n";
  }
  void Reload() { daemon_.Signal(SIGHUP); }
  // What others used before this daemon was there.
  void FillLedger(const std::string& team, double hours) {
    mkdir((folder_ / "state").c_str(), 0700);
    std::string trouble;
    ledger::LedgerOptions options;
    options.database = "sqlite:" + (folder_ / "state/ledger.sqlite");
    auto ledger = ledger::Ledger::Open(options, &trouble);
    ASSERT_TRUE(ledger) << ledger.error().message;
    ledger::Batch batch;
    batch.source = kSource;
    batch.node = "before";
    batch.seq = 1;
    batch.to = ledger::WallNow() - std::chrono::hours(30);
    batch.gpus = {{"GPU-x", "model", 1, Duration(0)}};
    ASSERT_TRUE((*ledger)->Apply(batch));
    batch.seq = 2;
    batch.to = ledger::WallNow() - std::chrono::minutes(1);
    ledger::Sample sample;
    sample.pod = 1;
    sample.gpu = "GPU-x";
    sample.owner = {"former", "", team, "someone"};
    sample.total.held_ns = static_cast<int64_t>(hours * 3600e9);
    batch.samples = {sample};
    ASSERT_TRUE((*ledger)->Apply(batch));
  }

  json Say(json request) { return Ask(folder_ / "run/control.sock", request); }
  json Make(const std::string& name, json more = json::object()) {
    json request{{"command", "create_pod"}, {"name", name}, {"request", 10}, {"gpus", {"GPU-a"}}};
    request.update(more);
    return Say(request);
  }
  std::string Pod(const std::string& name, json more = json::object()) {
    const json made = Make(name, std::move(more));
    EXPECT_TRUE(made.value("ok", false)) << made.dump();
    return made.value("ticket", "");
  }
  json PodStatus(const std::string& name) {
    const json status = Say({{"command", "status"}});
    for (const json& pod : status.value("pods", json::array())) {
      if (pod.at("name") == name) return pod;
    }
    return json::object();
  }
  int64_t Held(const std::string& pod) { return PodStatus(pod).value("held_ns", int64_t{-1}); }
  double Fluid(const std::string& pod) { return PodStatus(pod).at("gpus")[0].at("fluid"); }
  // Held and given back, so that all of it is charged.
  void Use(const std::string& pod, const std::string& ticket) {
    ScriptedClient client(folder_ / "run/baton.sock", ++incarnations_);
    ASSERT_TRUE(client.Join(ticket, "GPU-a"));
    ASSERT_TRUE(client.Ask() && client.AwaitGrant() && client.Report(wire::Phase::kHolding));
    ASSERT_TRUE(Eventually([&] {
      client.HasGrantNow();
      client.GiveBack();
      return PodStatus(pod).value("phase", "") == "idle";
    }));
  }
  json Report(const std::string& by) {
    return Say({{"command", "report"}, {"by", by}, {"last", "1h"}});
  }
  // What the books say that was held; -1 where they do not know of it.
  int64_t Booked(const std::string& by, const std::string& key) {
    const json report = Report(by);
    for (const json& row : report.value("rows", json::array())) {
      if (row.at("key") == key) return std::llround(row.at("held_hours").get<double>() * 3600e9);
    }
    return -1;
  }
  bool IsBooked(const std::string& by, const std::string& key, int64_t held) {
    return Eventually([&] { return Booked(by, key) == held; });
  }
  // Batches have come to the ledger.
  bool KnowsTheGpus() {
    return Eventually([&] { return Report("gpu").value("rows", json::array()).size() == 2; });
  }
  // Whether a line of what happened lately has all of these.
  bool Said(std::initializer_list<const char*> words) {
    const json status = Say({{"command", "status"}});
    for (const json& event : status.value("events", json::array())) {
      const std::string text = event.at("text");
      if (std::all_of(words.begin(), words.end(),
                      [&](const char* w) { return text.find(w) != std::string::npos; })) {
        return true;
      }
    }
    return false;
  }
  bool IsDegraded() { return !Say({{"command", "status"}}).at("daemon").at("degraded").empty(); }

  const TempFolder folder_;
  uint64_t incarnations_ = 0;
  DaemonProcess daemon_{BATOND, folder_ / "batond.toml", folder_ / "batond.log"};
};

TEST_F(KeptBooks, WhatAPodUsedStandsUnderAllItsNames) {
  Configure();
  Start();
  const std::string ticket =
      Pod("a", {{"user", "user-a"}, {"namespace", "space"}, {"team", "research/vision"}});
  Use("a", ticket);
  const int64_t held = Held("a");
  ASSERT_GT(held, 0);
  EXPECT_TRUE(IsBooked("pod", "space/a", held)) << Report("pod");
  EXPECT_EQ(Booked("user", "user-a"), held);
  EXPECT_EQ(Booked("namespace", "space"), held);
  EXPECT_EQ(Booked("team", "research/vision"), held);
  EXPECT_EQ(Booked("gpu", "GPU-a"), held);
  EXPECT_EQ(Booked("total", ""), held);
}

TEST_F(KeptBooks, TheLastUseOfADeletedPodIsBookedThoughTheDaemonIsKilledBeforeIt) {
  const std::string books = folder_ / "books", away = folder_ / "away";
  mkdir(books.c_str(), 0700);
  Configure("", "every = \"100ms\"\ndatabase = \"sqlite:" + books + "/ledger.sqlite\"");
  Start();
  ASSERT_TRUE(KnowsTheGpus());
  ASSERT_EQ(rename(books.c_str(), away.c_str()), 0);  // nothing can be booked
  Use("a", Pod("a", {{"team", "research"}}));
  const int64_t held = Held("a");
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "a"}}).value("ok", false));
  ASSERT_TRUE(Eventually([&] { return IsDegraded(); }));
  daemon_.Crash();
  ASSERT_EQ(rename(away.c_str(), books.c_str()), 0);
  Start();
  EXPECT_TRUE(IsBooked("pod", "a", held)) << Report("pod");
  EXPECT_TRUE(IsBooked("team", "research", held));
  // And is forgotten then.
  EXPECT_TRUE(Eventually(
      [&] { return ReadText(folder_ / "state/pods.json").find("research") == std::string::npos; }));
}

TEST_F(KeptBooks, WhatAPodUsesAfterItsMoveIsTheOtherTeams) {
  Configure();
  Start();
  const std::string ticket = Pod("a", {{"team", "one"}});
  Use("a", ticket);
  const int64_t before = Held("a");
  ASSERT_TRUE(IsBooked("team", "one", before));
  ASSERT_TRUE(Say({{"command", "set_pod"}, {"name", "a"}, {"team", "two"}}).value("ok", false));
  Use("a", ticket);
  EXPECT_TRUE(IsBooked("team", "two", Held("a") - before)) << Report("team");
  EXPECT_EQ(Booked("team", "one"), before);
}

// Of a pod's claims only its own books may suffer.
TEST_F(KeptBooks, ClaimsBeyondAllMeasureDoNotStopTheBooksOfOthers) {
  Configure();
  Start();
  const std::string liar = Pod("liar"), other = Pod("b");
  ScriptedClient client(folder_ / "run/baton.sock", 4711);
  ASSERT_TRUE(client.Join(liar, "GPU-a"));
  client.state.busy_ns = UINT64_MAX;
  client.state.waited_ns = uint64_t{1} << 62;
  client.state.unmanaged_ns = UINT64_MAX / 2;
  client.state.launches = UINT64_MAX - 1;
  client.state.memory_bytes = UINT64_MAX;
  ASSERT_TRUE(client.GiveBack());
  wire::Memory memory;
  memory.request = 1;
  memory.total = UINT64_MAX / 8;
  ASSERT_TRUE(client.Send(memory) && client.Await<wire::MemoryReply>());
  Use("b", other);
  EXPECT_TRUE(IsBooked("pod", "b", Held("b"))) << Say({{"command", "status"}}).at("daemon");
  EXPECT_FALSE(IsDegraded());
  const json total = Report("total");
  ASSERT_TRUE(total.value("ok", false)) << total;
  ASSERT_EQ(total.at("rows").size(), 1u) << total;
  // No more than the card has, for no longer than the pod was there.
  EXPECT_LT(total.at("rows")[0].at("memory_gib_hours").get<double>(), 0.1);
}

// The ids of pods begin anew where pods.json is lost, and the ledger remembers those of before.
TEST_F(KeptBooks, APodIsNotBookedAgainstAnotherOfBeforeThePodsFileWasLost) {
  Configure();
  Start();
  const std::string ticket = Pod("a");
  Use("a", ticket);
  Use("a", ticket);
  const int64_t held = Held("a");
  ASSERT_TRUE(Say({{"command", "delete_pod"}, {"name", "a"}}).value("ok", false));
  ASSERT_TRUE(IsBooked("pod", "a", held));
  ASSERT_EQ(daemon_.Stop(), 0);
  unlink((folder_ / "state/pods.json").c_str());
  Configure(
      "[[pod]]\nname = \"b\"\nrequest = 10\nticket = \"0123456789abcdef\"\n"
      "gpus = [\"GPU-a\"]\n");
  Start();
  Use("b", "0123456789abcdef");
  EXPECT_TRUE(IsBooked("pod", "b", Held("b"))) << Report("pod");
  EXPECT_EQ(Booked("pod", "a"), held);
}

TEST_F(KeptBooks, ATimeWithoutBooksIsBookedAfterIt) {
  Configure();
  Start();
  const std::string ticket = Pod("a");
  Use("a", ticket);
  Use("a", ticket);
  const std::string gone = Pod("gone");
  Use("gone", gone);
  const int64_t of_gone = Held("gone");
  ASSERT_TRUE(IsBooked("pod", "gone", of_gone));
  Configure("", "database = \"none\"");
  Restart();
  const json refused = Report("team");
  EXPECT_EQ(refused.value("code", ""), "unavailable");
  EXPECT_EQ(refused.value("error", ""), "batond keeps no books: ledger.database is \"none\"");
  Use("a", ticket);
  const int64_t held = Held("a");
  Configure();
  Restart();
  EXPECT_TRUE(IsBooked("pod", "a", held)) << Report("pod");
  EXPECT_EQ(Booked("pod", "gone"), of_gone);
}

// ----------------------------------------------------------------------------------------- teams

TEST_F(KeptBooks, TeamsShareWhatIsLeftOverByWeightAndHistoryAndAReloadApplies) {
  FillLedger("early", 20);
  Configure(Teams("[[team]]\nname = \"early\"\n[[team]]\nname = \"late\"\n"));
  Start();
  ScriptedClient early(folder_ / "run/baton.sock", 1), late(folder_ / "run/baton.sock", 2);
  ASSERT_TRUE(early.Join(Pod("e", {{"team", "early"}}), "GPU-a") && early.Ask());
  ASSERT_TRUE(early.AwaitGrant());
  ASSERT_TRUE(late.Join(Pod("l", {{"team", "late"}}), "GPU-a") && late.Ask());
  const auto fluid = [&](double of_early, double of_late) {
    return Eventually([&] {
      return std::abs(Fluid("e") - of_early) < 0.1 && std::abs(Fluid("l") - of_late) < 0.1;
    });
  };
  // e = w' + (w' - u'): half minus half for the one, half plus half for the other.
  EXPECT_TRUE(fluid(10, 90)) << Fluid("e") << ' ' << Fluid("l");
  // .9 + (.9 - 1) and .1 + .1, of the 80 % that nobody requested.
  Teams("[[team]]\nname = \"early\"\nweight = 9\n[[team]]\nname = \"late\"\n");
  Reload();
  EXPECT_TRUE(fluid(10 + 64, 10 + 16)) << Fluid("e") << ' ' << Fluid("l");
  // A broken file changes nothing, and is said.
  Teams("[[team]]\nname = \"early\"\nweight = -1\n");
  Reload();
  EXPECT_TRUE(Eventually([&] { return Said({"teams.toml:3", "the teams stay as they were"}); }));
  EXPECT_TRUE(fluid(10 + 64, 10 + 16));
}

TEST_F(KeptBooks, ATeamOverItsBudgetLosesPriorityOrTakesNoNewPods) {
  FillLedger("spent", 20);
  Configure(
      Teams("[[team]]\nname = \"spent\"\nbudget = 5\n[[team]]\nname = \"spent/closed\"\n"
            "[[team]]\nname = \"rich\"\nbudget = 500\n"));
  Start();
  EXPECT_TRUE(Eventually([&] { return Said({"team spent is over its budget of 5 GPU-hours"}); }));
  EXPECT_FALSE(Said({"is not known"})) << "that nobody has looked yet is no news";
  Pod("low", {{"team", "rich"}});
  const auto explained = [&](const std::string& pod) {
    return Say({{"command", "explain"}, {"pod", pod}}).at("sentences").dump();
  };
  Pod("high", {{"team", "spent/closed"}, {"priority", "high"}});
  EXPECT_NE(explained("high").find("its pods run at low priority"), std::string::npos)
      << explained("high");
  EXPECT_EQ(explained("low").find("low priority"), std::string::npos) << explained("low");
  // The same, where no new pods are taken.
  Teams("[[team]]\nname = \"spent\"\nbudget = 5\nover_budget = \"refuse\"\n");
  Reload();
  ASSERT_TRUE(Eventually([&] { return Said({"configuration read again"}); }));
  const json refused = Make("new", {{"team", "spent/closed"}});
  EXPECT_EQ(refused.value("code", ""), "exhausted") << refused;
  EXPECT_NE(refused.value("error", "").find("new pods of it are refused"), std::string::npos);
  // One that moves there is new there; one that is there may stay and change.
  const json moved = Say({{"command", "set_pod"}, {"name", "low"}, {"team", "spent"}});
  EXPECT_EQ(moved.value("code", ""), "exhausted") << moved;
  EXPECT_EQ(PodStatus("low").at("team"), "rich");
  EXPECT_TRUE(Say({{"command", "set_pod"}, {"name", "high"}, {"request", 12}}).value("ok", false));
}

TEST_F(KeptBooks, ATeamsLimitHoldsForNewPodsAndChanges) {
  Configure(Teams("[[team]]\nname = \"small\"\nlimit = 1\n"));
  Start();
  Pod("a", {{"team", "small"}, {"request", 60}});
  const json refused = Make("b", {{"team", "small"}, {"request", 60}, {"gpus", {"GPU-b"}}});
  EXPECT_EQ(refused.value("code", ""), "exhausted");
  EXPECT_EQ(refused.value("error", ""),
            "pods of team small may request 1 GPU together, and 0.6 are requested (a 0.6): 0.6 for "
            "b is too much; 0.4 would fit");
  Pod("b", {{"team", "small"}, {"request", 40}, {"gpus", {"GPU-b"}}});
  const json raised = Say({{"command", "set_pod"}, {"name", "b"}, {"request", 50}});
  EXPECT_EQ(raised.value("code", ""), "exhausted") << raised;
  Pod("c", {{"team", "other"}, {"request", 60}, {"gpus", {"GPU-b"}}});
  const json moved = Say({{"command", "set_pod"}, {"name", "c"}, {"team", "small/er"}});
  EXPECT_EQ(moved.value("code", ""), "exhausted") << moved;
}

TEST_F(KeptBooks, QuestionsThatMakeNoSenseAreAnsweredWithASentence) {
  Configure();
  Start();
  Pod("a");
  for (const auto& [request, code, words] : std::vector<std::tuple<json, std::string, std::string>>{
           {{{"command", "report"}, {"by", "colour"}}, "invalid", "choose one of team, user"},
           {{{"command", "report"}, {"bye", "team"}}, "invalid", "no field bye"},
           {{{"command", "report"}, {"by", 5}}, "invalid", "by must be a text"},
           {{{"command", "report"}, {"by", std::string(600, 'x')}}, "invalid", "512 characters"},
           {{{"command", "report"}, {"last", "soon"}}, "invalid", "soon"},
           {{{"command", "report"}, {"last", "0"}}, "invalid", "is empty"},
           {{{"command", "report"}, {"last", "7d"}, {"from", "2026-11-01"}}, "invalid", "either"},
           {{{"command", "report"}, {"to", "2026-11-01"}}, "invalid", "needs --from"},
           {{{"command", "report"}, {"from", "2026-02-30"}}, "invalid", "2026-02-30"},
           {{{"command", "report"}, {"from", nullptr}}, "invalid", "from must be a text"},
           {{{"command", "standing"}, {"team", "a"}}, "invalid", "no field team"},
           {{{"command", "explain"}}, "invalid", "either pod or team"},
           {{{"command", "explain"}, {"pod", "a"}, {"team", "b"}}, "invalid", "either"},
           {{{"command", "explain"}, {"pod", "nobody"}}, "not_found", "there is no pod nobody"},
           {{{"command", "explain"}, {"team", "a"}}, "not_found", "[teams] file is not set"},
           {{{"command", "advise"}, {"last", "-1d"}}, "invalid", "-1d"},
           {{{"command", "advise"}, {"pod", "a"}}, "invalid", "no field pod"},
       }) {
    const json answer = Say(request);
    EXPECT_FALSE(answer.value("ok", true)) << request;
    EXPECT_EQ(answer.value("code", ""), code) << request << answer;
    EXPECT_NE(answer.value("error", "").find(words), std::string::npos) << request << answer;
  }
  for (const char* command : {"report", "standing", "advise"}) {
    EXPECT_TRUE(Say({{"command", command}}).value("ok", false)) << command;
  }
  EXPECT_FALSE(Say({{"command", "explain"}, {"pod", "a"}}).at("sentences").empty());
  const json unnamed = Make("c", {{"user", std::string(300, 'u')}});
  EXPECT_EQ(unnamed.value("code", ""), "invalid") << unnamed;
}

// ------------------------------------------------------------------------- a ledger that is unwell

TEST_F(KeptBooks, ALedgerThatIsRemovedIsBegunAnewAndTokensGoOn) {
  Configure();
  Start();
  const std::string ticket = Pod("a");
  Use("a", ticket);
  ASSERT_TRUE(IsBooked("pod", "a", Held("a")));
  for (const char* end : {"", "-wal", "-shm"}) {
    unlink((folder_ / "state/ledger.sqlite" + end).c_str());
  }
  EXPECT_TRUE(Eventually([&] { return Said({"removed or replaced"}); })) << daemon_.Log();
  // The new one first hears of what is there, and books what is used from then on.
  ASSERT_TRUE(KnowsTheGpus());
  const int64_t before = Held("a");
  Use("a", ticket);
  EXPECT_TRUE(IsBooked("pod", "a", Held("a") - before)) << Report("pod");
}

TEST_F(KeptBooks, ALedgerThatWasDeletedCountsFromNowOnAndSaysSo) {
  Configure();
  Start();
  const std::string ticket = Pod("a");
  Use("a", ticket);
  const int64_t before = Held("a");
  ASSERT_TRUE(IsBooked("pod", "a", before));
  EXPECT_FALSE(Said({"the ledger knows nothing"}));
  EXPECT_EQ(daemon_.Stop(), 0);
  for (const char* end : {"", "-wal", "-shm"}) {
    unlink((folder_ / "state/ledger.sqlite" + end).c_str());
  }
  Start();
  EXPECT_TRUE(Eventually([&] { return Said({"the ledger knows nothing"}); })) << daemon_.Log();
  Use("a", ticket);
  EXPECT_TRUE(IsBooked("pod", "a", Held("a") - before));
}

TEST_F(KeptBooks, ADamagedLedgerIsMovedAsideAndSaidAndTokensGoOn) {
  Configure();
  Start();
  const std::string ticket = Pod("a");
  Use("a", ticket);
  ASSERT_TRUE(IsBooked("pod", "a", Held("a")));
  ASSERT_EQ(daemon_.Stop(), 0);
  WriteText(folder_ / "state/ledger.sqlite", std::string(8192, 'x'));
  Start();
  EXPECT_TRUE(Eventually([&] { return Said({"ledger.sqlite.damaged"}); })) << daemon_.Log();
  const int64_t before = Held("a");
  Use("a", ticket);
  EXPECT_TRUE(IsBooked("pod", "a", Held("a") - before)) << Report("pod");
}

TEST_F(KeptBooks, WithoutRoomForTheLedgerTokensGoOnAndNothingIsLost) {
  Configure();
  Start();
  const std::string ticket = Pod("a");
  Use("a", ticket);
  ASSERT_TRUE(IsBooked("pod", "a", Held("a")));
  rlimit none{0, 0}, before;
  ASSERT_EQ(prlimit(daemon_.pid(), RLIMIT_FSIZE, nullptr, &before), 0);
  none.rlim_max = before.rlim_max;
  ASSERT_EQ(prlimit(daemon_.pid(), RLIMIT_FSIZE, &none, nullptr), 0);
  EXPECT_TRUE(Eventually([&] {
    return Say({{"command", "status"}}).at("daemon").at("degraded").dump().find("ledger") !=
           std::string::npos;
  }));
  Use("a", ticket);
  ASSERT_EQ(prlimit(daemon_.pid(), RLIMIT_FSIZE, &before, nullptr), 0);
  EXPECT_TRUE(IsBooked("pod", "a", Held("a"))) << Report("pod");
  EXPECT_TRUE(Eventually([&] { return Said({"the ledger works again"}); }));
}

// ------------------------------------------------------------------------------------- federation

// The other end of a link between two batonds.
class Peer {
 public:
  explicit Peer(int type) : context_(zmq_ctx_new()), socket_(zmq_socket(context_, type)) {
    const int linger = 0, patience = ScriptedClient::kPatienceMs;
    zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &patience, sizeof patience);
  }
  ~Peer() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  void Connect(const std::string& address) { EXPECT_EQ(zmq_connect(socket_, address.c_str()), 0); }
  // Listens where there is room. The address.
  std::string Listen() {
    EXPECT_EQ(zmq_bind(socket_, "tcp://127.0.0.1:*"), 0);
    char address[64];
    size_t size = sizeof address;
    EXPECT_EQ(zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, address, &size), 0);
    return address;
  }
  // A ROUTER answers the one whom it heard last.
  void SendRaw(const std::string& bytes) {
    if (!identity_.empty()) zmq_send(socket_, identity_.data(), identity_.size(), ZMQ_SNDMORE);
    zmq_send(socket_, bytes.data(), bytes.size(), 0);
  }
  template <class Message>
  void Send(const Message& message, size_t payload = 0) {
    std::string buffer(payload + 4096, '\0');
    buffer.resize(wire::Encode(message, buffer.data(), buffer.size()));
    SendRaw(buffer);
  }
  // The next one; others are dropped. False when patience ends.
  template <class Message>
  bool Await(Message& message) {
    while (Receive()) {
      wire::Frame frame;
      if (frame.Parse(frame_.data(), frame_.size()) == wire::DecodeStatus::kOk &&
          frame.type() == Message::kType) {
        return frame.Read(message);
      }
    }
    return false;
  }

  void SayHello(const std::string& node) {
    wire::BooksHello hello;
    hello.node.Set(node);
    hello.source.Set(kSource);
    Send(hello);
  }
  void SendBatch(uint64_t seq, const std::string& bytes) {
    wire::BooksBatch message;
    message.seq = seq;
    message.batch = {bytes.data(), bytes.size()};
    Send(message, bytes.size());
  }

 private:
  bool Receive() {
    std::vector<std::string> parts;
    int more = 1;
    while (more != 0) {
      zmq_msg_t part;
      zmq_msg_init(&part);
      const bool got = zmq_msg_recv(&part, socket_, 0) >= 0;
      if (got) parts.emplace_back(static_cast<char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
      more = got ? zmq_msg_more(&part) : 0;
      zmq_msg_close(&part);
    }
    if (parts.empty()) return false;
    if (parts.size() > 1) identity_ = parts[0];
    frame_ = parts.back();
    return true;
  }

  void* context_;
  void* socket_;
  std::string identity_;
  std::string frame_;
};

ledger::Batch NodesBatch(uint64_t seq, int64_t held_ns) {
  ledger::Batch batch;
  batch.source = kSource;
  batch.node = "whatever";
  batch.seq = seq;
  batch.to = ledger::WallNow();
  ledger::Sample sample;
  sample.pod = 1;
  sample.gpu = "GPU-n";
  sample.owner.pod = "far";
  sample.owner.team = "research";
  sample.total.held_ns = held_ns;
  batch.samples = {sample};
  batch.gpus = {{"GPU-n", "model", 1, Duration(0)}};
  return batch;
}

class KeptBooksOfNodes : public KeptBooks {
 protected:
  void SetUp() override {
    address_ = "tcp://127.0.0.1:" + std::to_string(FreePort());
    Configure("[zmq]\nlisten = \"" + address_ + "\"\n");
    Start();
  }
  bool IsWelcomed(Peer& peer, const std::string& node) {
    peer.SayHello(node);
    wire::BooksWelcome welcome;
    return peer.Await(welcome);
  }
  bool IsAcknowledged(Peer& peer, uint64_t seq) {
    wire::BooksAck ack;
    return peer.Await(ack) && ack.seq == seq;
  }
  std::string address_;
};

TEST_F(KeptBooksOfNodes, WhateverANodeSendsTheOthersAreServed) {
  std::mt19937 random(4711);
  Peer hostile(ZMQ_DEALER);
  hostile.Connect(address_);
  hostile.SendBatch(1, "before any hello");
  int names = 0;
  // Of one node's batches one is looked at at a time.
  const auto send = [&](uint64_t seq, const std::string& bytes) {
    ASSERT_TRUE(IsWelcomed(hostile, "h" + std::to_string(++names))) << daemon_.Log();
    hostile.SendBatch(seq, bytes);
  };
  for (int i = 0; i < 40; ++i) {
    std::string bytes(random() % 300, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    hostile.SendRaw(bytes);
    send(random(), bytes);
  }
  send(1, std::string(4 << 20, '\x91'));  // one array in another, as deep as the frame is long
  send(1, std::string("\x97\x01\xdd\xff\xff\xff\xff", 7));
  send(7, ledger::EncodeBatch(NodesBatch(1, 5)));  // by another number
  send(UINT64_MAX, ledger::EncodeBatch(NodesBatch(UINT64_MAX, 5)));
  send(3, ledger::EncodeBatch(NodesBatch(3, -5)));
  auto future = NodesBatch(4, 5);
  future.to += std::chrono::hours(24 * 365 * 300);
  send(4, ledger::EncodeBatch(future));
  auto long_name = NodesBatch(5, 5);
  long_name.samples[0].owner.pod = std::string(100'000, '\xff');
  send(5, ledger::EncodeBatch(long_name));
  send(6, ledger::EncodeBatch(NodesBatch(6, 5)).substr(0, 40));

  Peer good(ZMQ_DEALER);
  good.Connect(address_);
  ASSERT_TRUE(IsWelcomed(good, "good")) << daemon_.Log();
  good.SendBatch(1, ledger::EncodeBatch(NodesBatch(1, 0)));
  ASSERT_TRUE(IsAcknowledged(good, 1)) << daemon_.Log();
  // The source is that of this node, though another has the same one.
  good.SendBatch(2, ledger::EncodeBatch(NodesBatch(2, 77'000'000)));
  ASSERT_TRUE(IsAcknowledged(good, 2));
  EXPECT_EQ(Booked("node", "good"), 77'000'000) << Report("node");
  good.SendBatch(2, ledger::EncodeBatch(NodesBatch(2, 77'000'000)));  // its ack was lost
  ASSERT_TRUE(IsAcknowledged(good, 2));
  EXPECT_EQ(Booked("node", "good"), 77'000'000);
}

TEST_F(KeptBooksOfNodes, APeerThatWasAnotherNodeBeforeTakesNothingFromThatNode) {
  Peer wanderer(ZMQ_DEALER), node(ZMQ_DEALER);
  wanderer.Connect(address_);
  node.Connect(address_);
  ASSERT_TRUE(IsWelcomed(wanderer, "n1"));
  ASSERT_TRUE(IsWelcomed(wanderer, "n2"));
  ASSERT_TRUE(IsWelcomed(node, "n1"));
  wanderer.SendBatch(1, ledger::EncodeBatch(NodesBatch(1, 0)));
  EXPECT_TRUE(IsAcknowledged(wanderer, 1)) << "it is n2, whoever n1 is";
  node.SendBatch(1, ledger::EncodeBatch(NodesBatch(1, 0)));
  EXPECT_TRUE(IsAcknowledged(node, 1));
}

class KeptBooksBelow : public KeptBooks {
 protected:
  void SetUp() override {
    Configure("[upstream]\nconnect = \"" + central_.Listen() + "\"\n[node]\nname = \"n0\"\n");
    Start();
  }
  Peer central_{ZMQ_ROUTER};
};

TEST_F(KeptBooksBelow, ACentralOneThatNeverAnswersCostsNothingHere) {
  const std::string ticket = Pod("a");
  wire::BooksHello hello;
  for (int i = 0; i < 2; ++i) {  // it goes on asking
    ASSERT_TRUE(central_.Await(hello));
    EXPECT_EQ(hello.node.view(), "n0");
    Use("a", ticket);
  }
  EXPECT_TRUE(IsBooked("pod", "a", Held("a")));
}

TEST_F(KeptBooksBelow, BatchesAreNumberedAboveWhatTheCentralOneKnows) {
  const std::string ticket = Pod("a");
  wire::BooksHello hello;
  ASSERT_TRUE(central_.Await(hello));
  wire::BooksWelcome welcome;
  welcome.seq = 1'000'000;
  central_.Send(welcome);
  Use("a", ticket);
  const auto await = [&](const std::function<bool(const ledger::Batch&)>& wanted) {
    wire::BooksBatch message;
    while (central_.Await(message)) {
      const auto batch = ledger::DecodeBatch({message.batch.data, message.batch.size});
      EXPECT_TRUE(batch && batch->seq == message.seq);
      wire::BooksAck ack;
      ack.seq = message.seq;
      if (batch && wanted(*batch)) return true;
      central_.Send(ack);
    }
    return false;
  };
  EXPECT_TRUE(await([](const ledger::Batch& batch) { return batch.seq > 1'000'000; }));
  // A number after which there is none is nobody's, and changes nothing here.
  welcome.seq = UINT64_MAX;
  central_.Send(welcome);
  wire::TeamsState teams;
  for (const char* text : {"", "{", "[]", "{\"teams\":5}", "{\"teams\":\"x = 1\"}",
                           "{\"teams\":\"\",\"uses\":[[1,2,3]],\"held\":{}}",
                           "{\"teams\":\"\",\"uses\":[],\"held\":{\"a\":\"b\"}}"}) {
    teams.json = {text, strlen(text)};
    central_.Send(teams);
  }
  Use("a", ticket);
  EXPECT_TRUE(IsBooked("pod", "a", Held("a"))) << Report("pod");
  EXPECT_FALSE(IsDegraded());
  EXPECT_TRUE(Eventually([&] { return Said({"the upstream sent make no sense"}); }));
}

TEST_F(KeptBooksBelow, TeamsOfTheCentralOneHoldHere) {
  wire::BooksHello hello;
  ASSERT_TRUE(central_.Await(hello));
  wire::TeamsState teams;
  const std::string text = json{
      {"teams",
       "[[team]]\nname = \"full\"\nbudget = 1\n"
       "over_budget = \"refuse\"\n"},
      {"uses", {{"full", "", 7.2e12}}},
      {"held",
       {{"full", 2.0}}}}.dump();
  teams.json = {text.data(), text.size()};
  central_.Send(teams);
  EXPECT_TRUE(Eventually([&] { return Said({"team full is over its budget"}); }));
  EXPECT_EQ(Make("a", {{"team", "full"}}).value("code", ""), "exhausted");
  // What it does not know is no news: the team stays what it was.
  const std::string again = json{
      {"teams", "[[team]]\nname = \"full\"\nbudget = 1\nover_budget = \"refuse\"\n"},
      {"uses", json::array()},
      {"held", json::object()}}.dump();
  teams.json = {again.data(), again.size()};
  central_.Send(teams);
  central_.Send(teams);
  EXPECT_EQ(Make("b", {{"team", "full"}}).value("code", ""), "exhausted");
  EXPECT_FALSE(Said({"is not known"}));
  EXPECT_FALSE(Said({"within its budget"}));
}

}  // namespace
}  // namespace baton::backend
