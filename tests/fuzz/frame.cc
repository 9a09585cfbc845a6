// Frames of hooks, relays and other batonds.
#include <cstring>
#include <vector>

#include "tests/fuzz/target.h"
#include "wire/batch.h"
#include "wire/codec.h"

namespace baton::fuzz {
namespace {

// A message that was read is written and read as the same.
template <class Message>
void ReadAgain(const wire::Frame& frame, size_t size) {
  Message message;
  if (!frame.Read(message)) return;
  // Numbers are written in their shortest form, but a frame may lack fields that are written.
  std::string bytes(size + 1024, '\0');
  bytes.resize(wire::Encode(message, bytes.data(), bytes.size()));
  BATON_CHECK(!bytes.empty());
  wire::Frame again;
  BATON_CHECK(again.Parse(bytes.data(), bytes.size()) == wire::DecodeStatus::kOk);
  Message same;
  BATON_CHECK(again.Read(same));
  std::string twice(bytes.size(), '\0');
  BATON_CHECK(wire::Encode(same, twice.data(), twice.size()) == bytes.size());
  BATON_CHECK(twice == bytes);
}

template <class... Messages>
void ReadAny(const wire::Frame& frame, size_t size) {
  (ReadAgain<Messages>(frame, size), ...);
}

void ReadFrame(std::string_view input, int depth) {
  wire::Frame frame;
  if (frame.Parse(input.data(), input.size()) != wire::DecodeStatus::kOk) return;
  using namespace wire;
  ReadAny<Hello, Attach, State, Memory, Welcome, Attached, Token, MemoryReply, MakeRoom,
          wire::Error, Sync, NodeHello, ClientUp, ClientDown, ClientFrame, Control, Ping,
          NodeChecked, BooksHello, BooksBatch, NodeWelcome, ToClient, NodeSync, BooksWelcome,
          BooksAck, TeamsState, NodeCheck, KillClient, FramesUp, FramesDown>(frame, input.size());
  ClientFrame inner;
  if (depth == 0 && frame.Read(inner) && inner.frame.data != nullptr) {
    BATON_CHECK(inner.frame.data >= input.data() &&
                inner.frame.data + inner.frame.size <= input.data() + input.size());
    ReadFrame({inner.frame.data, inner.frame.size}, depth + 1);
  }
}

// Each of those that came together lies within, and they are written as they were read.
template <class Message>
void ReadBatch(std::string_view input) {
  wire::Frame frame;
  Message message;
  if (frame.Parse(input.data(), input.size()) != wire::DecodeStatus::kOk || !frame.Read(message)) {
    return;
  }
  std::vector<std::string_view> frames;
  const bool whole = wire::EachFrame(message.frames, [&](std::string_view one) {
    BATON_CHECK(one.data() >= input.data() && !one.empty() &&
                one.data() + one.size() <= input.data() + input.size());
    frames.push_back(one);
  });
  if (!whole) return;
  wire::FrameBatch<Message> batch;
  size_t sent = 0;
  const auto send = [&](std::string_view bytes) {
    ++sent;
    if (frames.size() == 1) BATON_CHECK(bytes == frames[0]);
    wire::Frame again;
    Message same;
    if (frames.size() < 2) return;
    BATON_CHECK(again.Parse(bytes.data(), bytes.size()) == wire::DecodeStatus::kOk);
    BATON_CHECK(again.Read(same));
    BATON_CHECK(std::string_view(same.frames.data, same.frames.size) ==
                std::string_view(message.frames.data, message.frames.size));
  };
  for (const std::string_view one : frames) batch.Add(one, send);
  batch.Flush(send);
  BATON_CHECK(sent == (frames.empty() ? 0 : 1));
}

FUZZ_TARGET(frame) {
  ReadBatch<wire::FramesUp>(input);
  ReadBatch<wire::FramesDown>(input);
  ReadFrame(input, 0);
}

}  // namespace
}  // namespace baton::fuzz
