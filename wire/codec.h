// Encodes and decodes the messages of wire/messages.h as one msgpack array per frame:
//   [version, type, field, field, ...]
// Flat: integers, booleans, strings and bytes, never arrays or maps within. Neither way allocates:
// encoding writes into the caller's buffer; decoding, which every token waits for, reads the
// elements where they stand.
// Thread safe: no state.
#ifndef BATON_WIRE_CODEC_H_
#define BATON_WIRE_CODEC_H_

#include <msgpack.h>

#include <type_traits>

#include "wire/messages.h"

namespace baton::wire {

enum class DecodeStatus : uint8_t {
  kOk,
  kMalformed,  // not a frame, a field of the wrong kind, or out of its range
  kVersion,    // a version that this build does not speak
};

namespace internal {

// An element of a frame. Of other kinds (negative numbers, floats, nil) only where they end is of
// interest.
struct Element {
  enum class Kind : uint8_t { kUnsigned, kBool, kText, kBytes, kOther };
  Kind kind;
  uint64_t number;   // its value; of a text or bytes the length
  const char* data;  // of a text or bytes
};
// Reads the one at data[at], at < size. Returns the offset behind it, or 0 when it is cut short or
// nests.
size_t ReadElement(const char* data, size_t size, size_t at, Element& element);

}  // namespace internal

// A frame, and the messages in it. Texts and bytes point into the frame's buffer.
class Frame {
 public:
  // Parses `size` bytes at `data`, which must outlive this object's use.
  DecodeStatus Parse(const char* data, size_t size);
  // After kOk. The message's type; kTypes of messages.h, or one this build does not know.
  uint8_t type() const { return type_; }
  uint8_t version() const { return version_; }

  // Reads the fields of a message of the frame's type. False when a field has the wrong kind or
  // does not fit its C++ type; `message` is then unspecified.
  template <class Message>
  bool Read(Message& message) const {
    if (type_ != Message::kType) return false;
    Reader reader{data_, size_, fields_, count_, true};
    message.Fields(reader);
    return reader.ok;
  }

 private:
  struct Reader {
    using Kind = internal::Element::Kind;
    const char* data;
    size_t size;
    size_t at;
    size_t left;  // fields
    bool ok;

    // The next field. False when an older peer ended here, or when it is of another kind.
    bool Next(internal::Element& element, Kind kind) {
      if (left == 0) return false;
      --left;
      at = internal::ReadElement(data, size, at, element);
      if (element.kind != kind) ok = false;
      return element.kind == kind;
    }

    template <class T>
    requires std::is_integral_v<T> || std::is_enum_v<T>
    void operator()(T& field) {
      internal::Element e;
      if (!Next(e, std::is_same_v<T, bool> ? Kind::kBool : Kind::kUnsigned)) return;
      if constexpr (std::is_same_v<T, bool>) {
        field = e.number != 0;
      } else if constexpr (std::is_enum_v<T>) {
        // Enumerations are small; a value that this build does not know is kept as its number and
        // the receiver decides.
        if (e.number > 255)
          ok = false;
        else
          field = static_cast<T>(e.number);
      } else {
        static_assert(std::is_unsigned_v<T>);
        if (e.number > static_cast<T>(-1))
          ok = false;
        else
          field = static_cast<T>(e.number);
      }
    }
    template <size_t N>
    void operator()(Text<N>& field) {
      internal::Element e;
      if (!Next(e, Kind::kText)) return;
      if (e.number > N)
        ok = false;
      else
        field.Set({e.data, static_cast<size_t>(e.number)});
    }
    void operator()(Bytes& field) {
      internal::Element e;
      if (Next(e, Kind::kBytes)) field = {e.data, static_cast<size_t>(e.number)};
    }
  };

  const char* data_ = nullptr;
  size_t size_ = 0;
  size_t fields_ = 0;  // where they begin
  size_t count_ = 0;   // how many there are
  uint8_t type_ = 0;
  uint8_t version_ = 0;
};

namespace internal {

struct Sink {
  char* data;
  size_t capacity;
  size_t size;
};
int WriteToSink(void* sink, const char* bytes, size_t size);

struct Writer {
  msgpack_packer* packer;
  template <class T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  void operator()(const T& field) {
    if constexpr (std::is_same_v<T, bool>) {
      field ? msgpack_pack_true(packer) : msgpack_pack_false(packer);
    } else {
      msgpack_pack_uint64(packer, static_cast<uint64_t>(field));
    }
  }
  template <size_t N>
  void operator()(const Text<N>& field) {
    msgpack_pack_str(packer, field.view().size());
    msgpack_pack_str_body(packer, field.view().data(), field.view().size());
  }
  void operator()(const Bytes& field) {
    msgpack_pack_bin(packer, field.size);
    msgpack_pack_bin_body(packer, field.data, field.size);
  }
};

struct Counter {
  uint32_t count = 0;
  template <class T>
  void operator()(const T&) {
    ++count;
  }
};

}  // namespace internal

// Writes the frame of `message` to `buffer`. Returns its size in bytes, or 0 when it does not fit
// into `capacity`.
template <class Message>
size_t Encode(const Message& message, char* buffer, size_t capacity) {
  internal::Sink sink{buffer, capacity, 0};
  msgpack_packer packer;
  msgpack_packer_init(&packer, &sink, internal::WriteToSink);
  // Fields() lists the fields for reading and writing alike and is therefore not const.
  auto& fields = const_cast<Message&>(message);
  internal::Counter counter;
  fields.Fields(counter);
  msgpack_pack_array(&packer, counter.count + 2);
  internal::Writer writer{&packer};
  writer(kVersion);
  writer(Message::kType);
  fields.Fields(writer);
  return sink.size <= sink.capacity ? sink.size : 0;
}

}  // namespace baton::wire

#endif  // BATON_WIRE_CODEC_H_
