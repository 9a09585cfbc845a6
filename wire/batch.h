// Many frames of relay and batond in one message (FramesUp, FramesDown), each after its length:
// four bytes, least first. What a turn of an event loop has to say travels, and is encrypted, at
// once. Thread safe: no state beyond the objects.
#ifndef BATON_WIRE_BATCH_H_
#define BATON_WIRE_BATCH_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "wire/codec.h"
#include "wire/messages.h"

namespace baton::wire {

// Bytes of the frames in one message, with their lengths; whoever sends more is not understood.
inline constexpr size_t kBatchMax = 32 * 1024;
inline constexpr size_t kBatchLength = 4;

// `Message`: FramesUp or FramesDown.
template <class Message>
class FrameBatch {
 public:
  bool empty() const { return count_ == 0; }
  void Clear() {
    frames_.clear();
    count_ = 0;
  }
  // Keeps the frame, of at most kBatchMax - kBatchLength bytes. `send` is given what there was
  // before, where both together would be too long.
  template <class Send>
  void Add(std::string_view frame, Send&& send) {
    if (frames_.size() + kBatchLength + frame.size() > kBatchMax) Flush(send);
    const auto size = static_cast<uint32_t>(frame.size());
    for (size_t i = 0; i < kBatchLength; ++i) {
      frames_.push_back(static_cast<char>(size >> (8 * i) & 0xff));
    }
    frames_.append(frame);
    ++count_;
  }
  // Gives `send` the one message that says all of it: a frame that is alone as it is.
  template <class Send>
  void Flush(Send&& send) {
    if (count_ == 1) {
      send(std::string_view(frames_).substr(kBatchLength));
    } else if (count_ > 1) {
      Message message;
      message.frames = {frames_.data(), frames_.size()};
      message_.resize(frames_.size() + kAround);
      send(std::string_view(message_.data(), Encode(message, message_.data(), message_.size())));
    }
    Clear();
  }

 private:
  static constexpr size_t kAround = 32;  // what the message has beside them

  std::string frames_;
  std::string message_;
  size_t count_ = 0;
};

// Gives `take` each frame, in order. False, and no more of them: the next one's length is 0 or goes
// beyond the end, or they are too long in all (then it is given none).
template <class Take>
bool EachFrame(const Bytes& frames, Take&& take) {
  if (frames.size > kBatchMax) return false;
  for (size_t at = 0; at < frames.size;) {
    if (frames.size - at < kBatchLength) return false;
    size_t size = 0;
    for (size_t i = 0; i < kBatchLength; ++i) {
      size |= static_cast<size_t>(static_cast<unsigned char>(frames.data[at + i])) << (8 * i);
    }
    at += kBatchLength;
    if (size == 0 || size > frames.size - at) return false;
    take(std::string_view(frames.data + at, size));
    at += size;
  }
  return true;
}

}  // namespace baton::wire

#endif  // BATON_WIRE_BATCH_H_
