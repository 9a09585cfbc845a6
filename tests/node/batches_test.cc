// Many frames in one message between batond and a relay: each with an other end that may be of a
// version before, and that says what it should not.
#include <gtest/gtest.h>

#include "tests/backend/daemon_process.h"
#include "tests/backend/scripted_client.h"
#include "tests/backend/zmq_peer.h"
#include "wire/batch.h"

namespace baton::backend {
namespace {

using nlohmann::json;
using wire::Phase;

template <class Message>
std::string Encoded(const Message& message) {
  std::string bytes(wire::kRelayFrameMax, '\0');
  bytes.resize(wire::Encode(message, bytes.data(), bytes.size()));
  return bytes;
}

// The client's message, as it goes between relay and batond.
template <class Outer, class Message>
std::string Within(uint64_t client, const Message& message) {
  const std::string bytes = Encoded(message);
  Outer outer;
  outer.client = client;
  outer.frame = {bytes.data(), bytes.size()};
  return Encoded(outer);
}

template <class Message>
std::string Together(const std::vector<std::string>& frames) {
  std::string message;
  wire::FrameBatch<Message> batch;
  const auto send = [&](std::string_view bytes) { message = bytes; };
  for (const std::string& frame : frames) batch.Add(frame, send);
  batch.Flush(send);
  return message;
}

// batond, and a relay that the test is.
class BatchesOfARelay : public testing::Test {
 protected:
  void SetUp() override {
    const std::string address = "tcp://127.0.0.1:" + std::to_string(FreePort());
    WriteText(folder_ / "batond.toml", "[server]\nsocket_dir = \"" + (folder_ / "run") +
                                           "\"\nstate_dir = \"" + (folder_ / "state") +
                                           "\"\nlocal_gpus = \"no\"\n[http]\nlisten = \"\"\n" +
                                           "[zmq]\nlisten = \"" + address + "\"\n");
    ASSERT_TRUE(batond_.Start()) << batond_.Log();
    relay_.Connect(address);
  }
  void SayHello(bool batches) {
    wire::NodeHello hello;
    hello.node.Set("n0");
    hello.instance = 7;
    hello.gpus.Set("GPU-n 1073741824 model\n");
    hello.batches = batches;
    relay_.Send(hello);
    wire::NodeWelcome welcome;
    ASSERT_TRUE(relay_.Await(welcome)) << batond_.Log();
    EXPECT_TRUE(welcome.batches);
  }
  std::string Up(uint64_t client, const std::string& pod) {
    const json made =
        Ask(folder_ / "run/control.sock",
            {{"command", "create_pod"}, {"name", pod}, {"request", 10}, {"gpus", {"GPU-n"}}});
    EXPECT_TRUE(made.value("ok", false)) << made;
    wire::Hello hello;
    hello.ticket.Set(made.value("ticket", ""));
    hello.incarnation = client;
    const std::string bytes = Encoded(hello);
    wire::ClientUp up;
    up.client = up.pid = up.start_time = client;
    up.hello = {bytes.data(), bytes.size()};
    return Encoded(up);
  }
  static std::string Attach(uint64_t client) {
    wire::Attach attach;
    attach.uuid.Set("GPU-n");
    return Within<wire::ClientFrame>(client, attach);
  }
  static std::string Waits(uint64_t client, uint64_t seq) {
    wire::State state;
    state.seq = seq;
    state.phase = Phase::kWaiting;
    return Within<wire::ClientFrame>(client, state);
  }

  const TempFolder folder_;
  DaemonProcess batond_{BATOND, folder_ / "batond.toml", folder_ / "batond.log"};
  ZmqPeer relay_{ZMQ_DEALER};
};

TEST_F(BatchesOfARelay, AreTakenInOrderAndAnsweredTogether) {
  SayHello(true);
  relay_.SendRaw(Together<wire::FramesUp>(
      {Up(1, "a"), Attach(1), Up(2, "b"), Attach(2), Waits(1, 1), Waits(2, 1)}));
  // Two Welcomes, two Attacheds and a Token.
  wire::FramesDown answer;
  ASSERT_TRUE(relay_.Await(answer)) << batond_.Log();
  std::vector<uint64_t> types;
  EXPECT_TRUE(wire::EachFrame(answer.frames, [&](std::string_view bytes) {
    wire::Frame frame, inner;
    wire::ToClient to;
    ASSERT_EQ(frame.Parse(bytes.data(), bytes.size()), wire::DecodeStatus::kOk);
    ASSERT_TRUE(frame.Read(to));
    ASSERT_EQ(inner.Parse(to.frame.data, to.frame.size), wire::DecodeStatus::kOk);
    types.push_back(100 * to.client + inner.type());
  }));
  ASSERT_GE(types.size(), 5u);  // its holder may be told of the other one already
  types.resize(5);
  EXPECT_EQ(types, (std::vector<uint64_t>{100 + wire::Welcome::kType, 100 + wire::Attached::kType,
                                          200 + wire::Welcome::kType, 200 + wire::Attached::kType,
                                          100 + wire::Token::kType}));
}

TEST_F(BatchesOfARelay, OneOfBeforeGetsAMessageForEachFrame) {
  SayHello(false);
  for (const std::string& frame : {Up(1, "a"), Attach(1), Waits(1, 1)}) relay_.SendRaw(frame);
  for (int i = 0; i < 3; ++i) {
    wire::ToClient to;
    ASSERT_TRUE(relay_.Await(to)) << i << batond_.Log();
  }
}

TEST_F(BatchesOfARelay, WhatIsWrongInOneIsSaidAndTheOthersAreServed) {
  SayHello(true);
  const std::string nested = Together<wire::FramesUp>({Waits(1, 8), Waits(1, 9)});
  relay_.SendRaw(Together<wire::FramesUp>({Up(1, "a"), "nonsense", nested, Attach(1)}));
  wire::Error error;
  ASSERT_TRUE(relay_.Await(error));
  EXPECT_EQ(error.kind, wire::ErrorKind::kMalformed);
  ASSERT_TRUE(relay_.Await(error)) << "one batch in another";
  // Lengths: of 0, beyond the end, cut off; and too much in all.
  const std::string long_one(wire::kBatchMax, '\x01');
  for (const std::string& frames : {std::string(8, '\0'), std::string("\x09\0\0\0x", 5),
                                    std::string("\x01\0\0", 3), long_one}) {
    wire::FramesUp message;
    message.frames = {frames.data(), frames.size()};
    relay_.SendRaw(Encoded(message));
    ASSERT_TRUE(relay_.Await(error)) << batond_.Log();
    EXPECT_EQ(error.kind, wire::ErrorKind::kMalformed);
  }
  relay_.SendRaw(Waits(1, 1));
  wire::ToClient to;
  wire::Frame inner;
  wire::Token token;
  do {
    ASSERT_TRUE(relay_.Await(to)) << "the token: " << batond_.Log();
    ASSERT_EQ(inner.Parse(to.frame.data, to.frame.size), wire::DecodeStatus::kOk);
  } while (!inner.Read(token));
}

// A relay, and batond that the test is.
class BatchesOfBatond : public testing::Test {
 protected:
  void SetUp() override {
    WriteText(folder_ / "n0.toml", "[server]\nlock_dir = \"" + (folder_ / "lock") +
                                       "\"\n[node]\nname = \"n0\"\nsocket_dir = \"" +
                                       (folder_ / "run") + "\"\n[zmq]\nconnect = \"" +
                                       batond_.Listen() + "\"\n[[gpu]]\nuuid = \"GPU-n\"\n");
    ASSERT_TRUE(frontend_.Start()) << frontend_.Log();
  }
  void Welcome(bool batches) {
    wire::NodeHello hello;
    ASSERT_TRUE(batond_.Await(hello)) << frontend_.Log();
    EXPECT_TRUE(hello.batches);
    wire::NodeWelcome welcome;
    welcome.instance = 5;
    welcome.heartbeat_ns = 1'000'000'000;
    welcome.batches = batches;
    batond_.Send(welcome);
  }
  // Its number for the relay.
  uint64_t AwaitUp() {
    wire::ClientUp up;
    EXPECT_TRUE(batond_.Await(up)) << frontend_.Log();
    return up.client;
  }

  const TempFolder folder_;
  ZmqPeer batond_{ZMQ_ROUTER};
  DaemonProcess frontend_{FRONTEND, folder_ / "n0.toml", folder_ / "n0.log"};
};

TEST_F(BatchesOfBatond, ArePassedOnInOrder) {
  Welcome(true);
  ScriptedClient client(folder_ / "run/baton.sock");
  ASSERT_TRUE(client.SayHello("ticket"));
  const uint64_t number = AwaitUp();
  ASSERT_TRUE(client.SendAttach(0, "GPU-n"));
  wire::ClientFrame frame;
  ASSERT_TRUE(batond_.Await(frame));
  wire::Welcome welcome;
  wire::Attached attached;
  attached.gated = true;
  wire::Token token;
  token.epoch = 3;
  token.rev = 1;
  token.quota_ns = 1'000'000;
  batond_.SendRaw(Together<wire::FramesDown>({Within<wire::ToClient>(number, welcome), "nonsense",
                                              Within<wire::ToClient>(number, attached),
                                              Within<wire::ToClient>(number, token)}));
  ASSERT_TRUE(client.Await<wire::Welcome>()) << frontend_.Log();
  ASSERT_TRUE(client.Await<wire::Attached>());
  const auto got = client.AwaitGrant();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->epoch, 3u);
}

TEST_F(BatchesOfBatond, OneOfBeforeGetsAMessageForEachFrame) {
  Welcome(false);
  std::vector<std::unique_ptr<ScriptedClient>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<ScriptedClient>(folder_ / "run/baton.sock"));
    ASSERT_TRUE(clients.back()->SayHello("ticket"));
  }
  for (int i = 0; i < 20; ++i) EXPECT_NE(AwaitUp(), 0u) << i;
}

// A batond of before has taken the place of one that understands them: NodeHello comes by itself.
TEST_F(BatchesOfBatond, ANewBatondIsFirstToldWhoIsThere) {
  Welcome(true);
  std::vector<std::unique_ptr<ScriptedClient>> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(std::make_unique<ScriptedClient>(folder_ / "run/baton.sock"));
    ASSERT_TRUE(clients.back()->SayHello("ticket"));
  }
  batond_.Send(wire::NodeSync{});
  Welcome(false);
  for (int i = 0; i < 5; ++i) EXPECT_NE(AwaitUp(), 0u) << i;
}

}  // namespace
}  // namespace baton::backend
