#include "wire/codec.h"

#include <cstring>

namespace baton::wire {
namespace {

// Walks over one flat msgpack element at data[at]. Returns the offset behind it, or 0 when it is
// cut short or nests. msgpack-c allocates by the lengths a frame claims; after this walk those
// lengths are known to be within the frame.
size_t SkipFlat(const unsigned char* data, size_t size, size_t at) {
  auto big_endian = [&](size_t bytes) {
    size_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value = value << 8 | data[at + 1 + i];
    return value;
  };
  const unsigned char head = data[at];
  size_t length_bytes = 0;  // of the length that follows the head
  size_t body = 0;
  if (head <= 0x7f || head >= 0xe0 || head == 0xc0 || head == 0xc2 || head == 0xc3) {
    body = 0;
  } else if ((head & 0xe0) == 0xa0) {
    body = head & 0x1f;
  } else if (head == 0xc4 || head == 0xd9) {
    length_bytes = 1;
  } else if (head == 0xc5 || head == 0xda) {
    length_bytes = 2;
  } else if (head == 0xc6 || head == 0xdb) {
    length_bytes = 4;
  } else if (head == 0xcc || head == 0xd0) {
    body = 1;
  } else if (head == 0xcd || head == 0xd1) {
    body = 2;
  } else if (head == 0xca || head == 0xce || head == 0xd2) {
    body = 4;
  } else if (head == 0xcb || head == 0xcf || head == 0xd3) {
    body = 8;
  } else {
    return 0;  // arrays, maps, extensions
  }
  if (size - at - 1 < length_bytes) return 0;
  if (length_bytes != 0) body = big_endian(length_bytes);
  if (size - at - 1 - length_bytes < body) return 0;
  return at + 1 + length_bytes + body;
}

bool IsFlatFrame(const char* bytes, size_t size) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes);
  if (size < 3) return false;
  size_t count = 0;
  size_t at = 0;
  if ((data[0] & 0xf0) == 0x90) {
    count = data[0] & 0x0f;
    at = 1;
  } else if (data[0] == 0xdc) {
    count = static_cast<size_t>(data[1]) << 8 | data[2];
    at = 3;
  } else {
    return false;
  }
  if (count < 2 || count > size) return false;
  for (size_t i = 0; i < count; ++i) {
    if (at >= size) return false;
    at = SkipFlat(data, size, at);
    if (at == 0) return false;
  }
  return at == size;
}

}  // namespace

DecodeStatus Frame::Parse(const char* data, size_t size) {
  if (!IsFlatFrame(data, size)) return DecodeStatus::kMalformed;
  size_t offset = 0;
  if (msgpack_unpack_next(&unpacked_, data, size, &offset) != MSGPACK_UNPACK_SUCCESS) {
    return DecodeStatus::kMalformed;
  }
  const msgpack_object& root = unpacked_.data;
  const msgpack_object* elements = root.via.array.ptr;
  for (int i = 0; i < 2; ++i) {
    if (elements[i].type != MSGPACK_OBJECT_POSITIVE_INTEGER || elements[i].via.u64 > 255) {
      return DecodeStatus::kMalformed;
    }
  }
  version_ = static_cast<uint8_t>(elements[0].via.u64);
  type_ = static_cast<uint8_t>(elements[1].via.u64);
  if (version_ + 1 < kVersion || version_ > kVersion + 1) return DecodeStatus::kVersion;
  fields_ = elements + 2;
  count_ = root.via.array.size - 2;
  return DecodeStatus::kOk;
}

namespace internal {

int WriteToSink(void* sink, const char* bytes, size_t size) {
  auto* out = static_cast<Sink*>(sink);
  // Empty bytes may be nowhere.
  if (size > 0 && out->size + size <= out->capacity)
    std::memcpy(out->data + out->size, bytes, size);
  out->size += size;  // past the capacity: Encode() reports that it did not fit
  return 0;
}

}  // namespace internal
}  // namespace baton::wire
