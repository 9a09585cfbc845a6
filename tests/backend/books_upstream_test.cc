// batond's books over several nodes: a link whose other end the test is.
#include "tests/backend/kept_books.h"
#include "tests/backend/zmq_peer.h"

namespace baton::backend {
namespace {

// The other end of a link between two batonds.
class Peer : public ZmqPeer {
 public:
  using ZmqPeer::ZmqPeer;

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

TEST_F(KeptBooksOfNodes, WhatNoOtherTeamWantedOnANodeIsNotCountedHereEither) {
  Peer node(ZMQ_DEALER);
  node.Connect(address_);
  ASSERT_TRUE(IsWelcomed(node, "n1")) << daemon_.Log();
  ledger::Batch batch = NodesBatch(1, 0);
  batch.to -= std::chrono::seconds(10);
  node.SendBatch(1, ledger::EncodeBatch(batch));
  ASSERT_TRUE(IsAcknowledged(node, 1)) << daemon_.Log();
  batch = NodesBatch(2, 8'000'000'000);
  batch.samples[0].total.uncontended_ns = 6'000'000'000;
  node.SendBatch(2, ledger::EncodeBatch(batch));
  ASSERT_TRUE(IsAcknowledged(node, 2)) << daemon_.Log();
  const json row = StandingOf("research");
  EXPECT_NEAR(row.value("raw_usage_hours", -1.0) * 3600, 2, 0.02) << row;
  EXPECT_NEAR(row.value("uncounted_hours", -1.0) * 3600, 6, 0.06) << row;
}

TEST_F(KeptBooksOfNodes, PodsOfOneNameOnTwoNodesAreOneRowByPodAndTwoByNodeAndPod) {
  const std::map<std::string, int64_t> nodes{{"n1", 36'000'000}, {"n2", 72'000'000}};
  for (const auto& [name, held_ns] : nodes) {
    Peer node(ZMQ_DEALER);
    node.Connect(address_);
    ASSERT_TRUE(IsWelcomed(node, name)) << daemon_.Log();
    for (uint64_t seq : {1, 2}) {
      auto batch = NodesBatch(seq, seq == 1 ? 0 : held_ns);
      batch.samples[0].gpu = batch.gpus[0].uuid = "GPU-" + name;
      node.SendBatch(seq, ledger::EncodeBatch(batch));
      ASSERT_TRUE(IsAcknowledged(node, seq)) << daemon_.Log();
    }
  }
  EXPECT_EQ(Booked("pod", "far"), 108'000'000) << Report("pod");
  std::map<std::string, int64_t> held;
  for (const json& row : Report("node,pod").value("rows", json::array())) {
    ASSERT_EQ(row.at("keys").size(), 2u) << row;
    if (row.at("keys")[1] != "far") continue;
    held[row.at("keys")[0]] = std::llround(row.at("held_hours").get<double>() * 3600e9);
  }
  EXPECT_EQ(held, nodes) << Report("node,pod");
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
  EXPECT_TRUE(Eventually([&] { return Said({"the upstream sent malformed teams"}); }));
}

TEST_F(KeptBooksBelow, BatchesSayWhatNoOtherTeamWanted) {
  wire::BooksHello hello;
  ASSERT_TRUE(central_.Await(hello));
  central_.Send(wire::BooksWelcome{});
  Use("a", Pod("a"));
  const int64_t held = Held("a");
  wire::BooksBatch message;
  int64_t said = 0, uncontended = 0;
  while (said != held && central_.Await(message)) {
    const auto batch = ledger::DecodeBatch({message.batch.data, message.batch.size});
    ASSERT_TRUE(batch) << batch.error().message;
    for (const ledger::Sample& sample : batch->samples) {
      said = sample.total.held_ns;
      uncontended = sample.total.uncontended_ns;
    }
    wire::BooksAck ack;
    ack.seq = message.seq;
    central_.Send(ack);
  }
  ASSERT_GT(held, 0);
  EXPECT_EQ(said, held);
  EXPECT_EQ(uncontended, held);
}

TEST_F(KeptBooksBelow, UseThatTheCentralOneDoesNotCountDoesNotCountHere) {
  wire::BooksHello hello;
  ASSERT_TRUE(central_.Await(hello));
  const auto tell = [&](json uses) {
    const std::string text = json{
        {"teams", "[[team]]\nname = \"n\"\n[[team]]\nname = \"d\"\n"},
        {"uses", std::move(uses)},
        {"held", json::object()}}.dump();
    wire::TeamsState teams;
    teams.json = {text.data(), text.size()};
    central_.Send(teams);
  };
  Pod("n", {{"team", "n"}});
  const auto explains = [&](const char* words) {
    return Eventually([&] {
      return Say({{"command", "explain"}, {"pod", "n"}}).dump().find(words) != std::string::npos;
    });
  };
  Pod("d", {{"team", "d"}});
  tell({{"n", "", 1e12}, {"d", "", 3e12}});  // as an upstream of the version before
  EXPECT_TRUE(explains("has 25% of what they used")) << daemon_.Log();
  tell({{"n", "", 1e12, 4e12}, {"d", "", 3e12, 2e12}});
  EXPECT_TRUE(explains("has 10% of what they used")) << daemon_.Log();
  EXPECT_TRUE(explains("40% more is not held against it")) << daemon_.Log();
}

TEST_F(KeptBooksBelow, AMetricSaysWhetherTheCentralOneTakesUsage) {
  wire::BooksHello hello;
  ASSERT_TRUE(central_.Await(hello));
  wire::Error refusal;
  refusal.text.Set("no room");
  central_.Send(refusal);
  EXPECT_TRUE(Eventually([&] { return HasMetric("baton_upstream_up 0"); }));
  central_.Send(wire::BooksWelcome{});
  EXPECT_TRUE(Eventually([&] { return HasMetric("baton_upstream_up 1"); }));
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
