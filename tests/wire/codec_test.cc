#include "wire/codec.h"

#include <gtest/gtest.h>
#include <msgpack.h>

#include <random>
#include <string>
#include <vector>

#include "wire/batch.h"

namespace baton::wire {
namespace {

template <class Message>
std::string Encoded(const Message& message) {
  std::string buffer(kRelayFrameMax, '\0');
  buffer.resize(Encode(message, buffer.data(), buffer.size()));
  return buffer;
}

TEST(Codec, AStateComesBackAsItWasSent) {
  State sent;
  sent.gpu = 3;
  sent.seq = 1ull << 60;
  sent.phase = Phase::kDraining;
  sent.epoch = 77;
  sent.held_ns = ~0ull;
  const std::string bytes = Encoded(sent);
  Frame frame;
  ASSERT_EQ(frame.Parse(bytes.data(), bytes.size()), DecodeStatus::kOk);
  EXPECT_EQ(frame.type(), State::kType);
  State got;
  ASSERT_TRUE(frame.Read(got));
  EXPECT_EQ(got.gpu, 3);
  EXPECT_EQ(got.seq, 1ull << 60);
  EXPECT_EQ(got.phase, Phase::kDraining);
  EXPECT_EQ(got.epoch, 77u);
  EXPECT_EQ(got.held_ns, ~0ull);
}

TEST(Codec, TextsAndNestedFramesComeBack) {
  Hello hello;
  hello.ticket.Set("ticket-1");
  hello.command.Set(std::string(500, 'x'));
  EXPECT_EQ(hello.command.view().size(), 128u) << "a long command is cut, not refused";
  const std::string inner = Encoded(hello);
  ClientUp up;
  up.client = 9;
  up.hello = {inner.data(), inner.size()};
  const std::string outer = Encoded(up);
  Frame frame;
  ASSERT_EQ(frame.Parse(outer.data(), outer.size()), DecodeStatus::kOk);
  ClientUp got;
  ASSERT_TRUE(frame.Read(got));
  EXPECT_EQ(std::string(got.hello.data, got.hello.size), inner);
}

TEST(Codec, ABufferTooSmallIsToldByZero) {
  char small[4];
  EXPECT_EQ(Encode(Hello{}, small, sizeof small), 0u);
}

std::string WithVersion(std::string bytes, uint8_t version) {
  bytes[1] = static_cast<char>(version);  // fixarray head, then the version as a positive fixint
  return bytes;
}

TEST(Codec, NeighbouringVersionsAreReadAndOthersRefused) {
  const std::string bytes = Encoded(Sync{});
  for (int version = 0; version < 8; ++version) {
    Frame frame;
    const std::string other = WithVersion(bytes, static_cast<uint8_t>(version));
    const bool near = version >= kVersion - 1 && version <= kVersion + 1;
    EXPECT_EQ(frame.Parse(other.data(), other.size()),
              near ? DecodeStatus::kOk : DecodeStatus::kVersion)
        << version;
  }
}

// What a reader has of these bytes; they must outlive it.
template <class Message>
Message Parsed(const std::string& bytes) {
  Frame frame;
  EXPECT_EQ(frame.Parse(bytes.data(), bytes.size()), DecodeStatus::kOk);
  Message message;
  EXPECT_TRUE(frame.Read(message));
  return message;
}

TEST(Codec, FieldsThatANewerPeerAppendsAreSkippedAndMissingOnesKeepTheirDefault) {
  // [1, Token, gpu, epoch] and [1, Sync, 5, "new"].
  const std::string shorter = {'\x94', 1, Token::kType, 2, 9};
  const Token token = Parsed<Token>(shorter);
  EXPECT_EQ(token.epoch, 9u);
  EXPECT_EQ(token.quota_ns, 0u);
  const std::string longer = {'\x94', 1, Sync::kType, 5, '\xa3', 'n', 'e', 'w'};
  Parsed<Sync>(longer);
}

TEST(Codec, ARelayOfBeforeMeasuresItsClientsAlone) {
  const std::string before = {'\x95', 1, ClientFrame::kType, 4, 9, '\xc4', 1, 'x'};
  ClientFrame message = Parsed<ClientFrame>(before);
  EXPECT_EQ(message.client, 4u);
  EXPECT_EQ(message.held_ns, 9u);
  EXPECT_EQ(message.pod_held_ns, 0u);
  EXPECT_EQ(message.age_ns, 0u);
  EXPECT_FALSE(message.ended);
  message.pod_held_ns = 11;
  message.age_ns = 12;
  message.ended = true;
  const std::string now = Encoded(message);
  const ClientFrame got = Parsed<ClientFrame>(now);
  EXPECT_EQ(std::string(got.frame.data, got.frame.size), "x") << "where one of before looks for it";
  EXPECT_EQ(got.pod_held_ns, 11u);
  EXPECT_EQ(got.age_ns, 12u);
  EXPECT_TRUE(got.ended);
}

TEST(Codec, AFieldOfTheWrongKindOrOutOfRangeIsRefused) {
  for (const std::string& bytes :
       std::vector<std::string>{{'\x93', 1, State::kType, '\xa1', 'x'},        // gpu is a string
                                {'\x93', 1, State::kType, '\xcd', 1, 0},       // gpu is 256
                                {'\x93', 1, State::kType, '\xff'},             // gpu is -1
                                {'\x93', 1, Hello::kType, '\xc4', 1, 'x'}}) {  // ticket is bytes
    Frame frame;
    ASSERT_EQ(frame.Parse(bytes.data(), bytes.size()), DecodeStatus::kOk);
    State state;
    Hello hello;
    EXPECT_FALSE(frame.Read(state) || frame.Read(hello));
  }
}

TEST(Codec, ClaimedLengthsBeyondTheFrameAndNestingAreMalformed) {
  for (const std::string& bytes : std::vector<std::string>{
           "",
           std::string(10, '\0'),
           {'\xdd', '\xff', '\xff', '\xff', '\xff', 1, 1},          // array of 4 billion
           {'\x93', 1, 1, '\xdb', '\xff', '\xff', '\xff', '\xff'},  // string of 4 GB
           {'\x93', 1, 1, '\x91', 1},                               // array within
           {'\x93', 1, 1, '\x81', 1, 1},                            // map within
           {'\x92', 1, 1, 7}}) {                                    // bytes left over
    Frame frame;
    EXPECT_EQ(frame.Parse(bytes.data(), bytes.size()), DecodeStatus::kMalformed);
  }
}

// As many as fit into a message, each as it was.
TEST(FrameBatch, WhatIsAddedComesOutInOrder) {
  std::mt19937 random(7);
  for (const size_t count : {0, 1, 2, 30, 300}) {
    std::vector<std::string> frames;
    for (size_t i = 0; i < count; ++i)
      frames.push_back(std::string(1 + random() % 4096, static_cast<char>('a' + i % 26)));
    std::vector<std::string> got;
    size_t messages = 0;
    const auto send = [&](std::string_view bytes) {
      ++messages;
      Frame frame;
      FramesUp many;
      if (frame.Parse(bytes.data(), bytes.size()) == DecodeStatus::kOk && frame.Read(many)) {
        EXPECT_LE(many.frames.size, kBatchMax);
        EXPECT_TRUE(EachFrame(many.frames, [&](std::string_view one) { got.emplace_back(one); }));
      } else {
        got.emplace_back(bytes);  // alone, as it is
      }
    };
    FrameBatch<FramesUp> batch;
    for (const std::string& frame : frames) batch.Add(frame, send);
    EXPECT_EQ(batch.empty(), count == 0);
    batch.Flush(send);
    EXPECT_TRUE(batch.empty());
    EXPECT_EQ(got, frames);
    EXPECT_LE(messages, 1 + count * 4100 / (kBatchMax - 4100));
    batch.Flush(send);
    EXPECT_EQ(got, frames) << "once";
  }
}

TEST(Codec, EmptyBytesComeBack) {
  const std::string bytes = Encoded(Control{});
  Frame frame;
  ASSERT_EQ(frame.Parse(bytes.data(), bytes.size()), DecodeStatus::kOk);
  Control got;
  ASSERT_TRUE(frame.Read(got));
  EXPECT_EQ(got.json.size, 0u);
}

// Whatever is in them, cut short anywhere or with a byte of another value.
TEST(Codec, ElementsAreReadAsMsgpackReadsThem) {
  std::mt19937_64 random(1);
  using Kind = internal::Element::Kind;
  const auto compare = [](const std::string& bytes) {
    internal::Element e{};
    const size_t end = internal::ReadElement(bytes.data(), bytes.size(), 0, e);
    const int head = static_cast<unsigned char>(bytes[0]);
    // Arrays and maps: msgpack-c takes as much memory as one in them says.
    if ((head >= 0x80 && head <= 0x9f) || (head >= 0xdc && head <= 0xdf)) {
      EXPECT_EQ(end, 0u);
      return;
    }
    msgpack_unpacked unpacked;
    msgpack_unpacked_init(&unpacked);
    size_t offset = 0;
    const bool whole = msgpack_unpack_next(&unpacked, bytes.data(), bytes.size(), &offset) ==
                       MSGPACK_UNPACK_SUCCESS;
    const msgpack_object& o = unpacked.data;
    const bool flat = whole && o.type != MSGPACK_OBJECT_ARRAY && o.type != MSGPACK_OBJECT_MAP &&
                      o.type != MSGPACK_OBJECT_EXT;
    EXPECT_EQ(end, flat ? offset : 0) << testing::PrintToString(bytes);
    if (end != 0 && flat) {
      const Kind kind = o.type == MSGPACK_OBJECT_POSITIVE_INTEGER ? Kind::kUnsigned
                        : o.type == MSGPACK_OBJECT_BOOLEAN        ? Kind::kBool
                        : o.type == MSGPACK_OBJECT_STR            ? Kind::kText
                        : o.type == MSGPACK_OBJECT_BIN            ? Kind::kBytes
                                                                  : Kind::kOther;
      EXPECT_EQ(e.kind, kind) << testing::PrintToString(bytes);
      if (kind == Kind::kUnsigned) {
        EXPECT_EQ(e.number, o.via.u64);
      }
      if (kind == Kind::kBool) {
        EXPECT_EQ(e.number != 0, o.via.boolean);
      }
      if (kind == Kind::kText || kind == Kind::kBytes) {
        EXPECT_EQ(std::string(e.data, e.number), std::string(o.via.str.ptr, o.via.str.size));
      }
    }
    msgpack_unpacked_destroy(&unpacked);
  };
  for (int head = 0; head < 256; ++head) {
    for (int i = 0; i < 200; ++i) {
      std::string bytes(1 + random() % 40, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      bytes[0] = static_cast<char>(head);
      // Lengths of three or four bytes are seldom short enough by chance.
      if (i % 2 == 0)
        std::fill(bytes.begin() + 1, bytes.begin() + std::min<long>(4, bytes.size()), '\0');
      compare(bytes);
    }
  }
}

}  // namespace
}  // namespace baton::wire
