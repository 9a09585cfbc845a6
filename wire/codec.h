// Encodes and decodes the messages of wire/messages.h as one msgpack array per frame:
//   [version, type, field, field, ...]
// Flat: integers, booleans, strings and bytes, never arrays or maps within. Encoding writes into
// the caller's buffer and never allocates; decoding bounds every length by the frame before
// msgpack-c sees it, so no frame makes it allocate more than a small multiple of the frame's size.
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

// A frame's parsed elements. Texts and bytes point into the frame's buffer.
class Frame {
 public:
  Frame() = default;
  ~Frame() { msgpack_unpacked_destroy(&unpacked_); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

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
    Reader reader{fields_, count_, 0, true};
    message.Fields(reader);
    return reader.ok;
  }

 private:
  struct Reader {
    const msgpack_object* fields;
    uint32_t count;
    uint32_t next;
    bool ok;

    // The next field, or null when an older peer ended here.
    const msgpack_object* Next() { return next < count ? &fields[next++] : nullptr; }

    template <class T>
    requires std::is_integral_v<T> || std::is_enum_v<T>
    void operator()(T& field) {
      const msgpack_object* o = Next();
      if (o == nullptr) return;
      if constexpr (std::is_same_v<T, bool>) {
        if (o->type != MSGPACK_OBJECT_BOOLEAN)
          ok = false;
        else
          field = o->via.boolean;
      } else if constexpr (std::is_enum_v<T>) {
        // Enumerations are small; a value that this build does not know is kept as its number and
        // the receiver decides.
        if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER || o->via.u64 > 255)
          ok = false;
        else
          field = static_cast<T>(o->via.u64);
      } else {
        static_assert(std::is_unsigned_v<T>);
        if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER || o->via.u64 > static_cast<T>(-1))
          ok = false;
        else
          field = static_cast<T>(o->via.u64);
      }
    }
    template <size_t N>
    void operator()(Text<N>& field) {
      const msgpack_object* o = Next();
      if (o == nullptr) return;
      if (o->type != MSGPACK_OBJECT_STR || o->via.str.size > N)
        ok = false;
      else
        field.Set({o->via.str.ptr, o->via.str.size});
    }
    void operator()(Bytes& field) {
      const msgpack_object* o = Next();
      if (o == nullptr) return;
      if (o->type != MSGPACK_OBJECT_BIN)
        ok = false;
      else
        field = {o->via.bin.ptr, o->via.bin.size};
    }
  };

  msgpack_unpacked unpacked_ = {};
  const msgpack_object* fields_ = nullptr;
  uint32_t count_ = 0;
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
