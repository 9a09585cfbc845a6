#include "wire/codec.h"

#include <cstring>

namespace baton::wire {
namespace {

using internal::Element;

struct Head {
  size_t count;  // of the array's elements; 0: it is none
  size_t first;  // where the first one is
};

Head ReadHead(const char* bytes, size_t size) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes);
  if (size < 3) return {0, 0};
  if ((data[0] & 0xf0) == 0x90) return {static_cast<size_t>(data[0] & 0x0f), 1};
  if (data[0] == 0xdc) return {static_cast<size_t>(data[1]) << 8 | data[2], 3};
  return {0, 0};
}

}  // namespace

DecodeStatus Frame::Parse(const char* data, size_t size) {
  auto [count, at] = ReadHead(data, size);
  if (count < 2) return DecodeStatus::kMalformed;
  for (size_t i = 0; i < count; ++i) {
    Element e;
    if (at >= size) return DecodeStatus::kMalformed;
    at = internal::ReadElement(data, size, at, e);
    if (at == 0) return DecodeStatus::kMalformed;
    if (i >= 2) continue;
    if (e.kind != Element::Kind::kUnsigned || e.number > 255) return DecodeStatus::kMalformed;
    (i == 0 ? version_ : type_) = static_cast<uint8_t>(e.number);
    fields_ = at;
  }
  if (at != size) return DecodeStatus::kMalformed;
  if (version_ + 1 < kVersion || version_ > kVersion + 1) return DecodeStatus::kVersion;
  data_ = data;
  size_ = size;
  count_ = count - 2;
  return DecodeStatus::kOk;
}

namespace internal {

size_t ReadElement(const char* bytes, size_t size, size_t at, Element& element) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes) + at;
  const size_t left = size - at - 1;  // behind the head
  const auto big_endian = [&](size_t length) {
    uint64_t value = 0;
    for (size_t i = 0; i < length; ++i) value = value << 8 | data[1 + i];
    return value;
  };
  const auto number = [&](size_t length, bool is_signed) -> size_t {
    if (left < length) return 0;
    element.number = big_endian(length);
    const bool negative = is_signed && (element.number >> (8 * length - 1)) != 0;
    element.kind = negative ? Element::Kind::kOther : Element::Kind::kUnsigned;
    return at + 1 + length;
  };
  const auto text = [&](Element::Kind kind, size_t header, uint64_t length) -> size_t {
    if (left < header || left - header < length) return 0;
    element = {kind, length, bytes + at + 1 + header};
    return at + 1 + header + length;
  };
  const auto sized = [&](Element::Kind kind, size_t header) -> size_t {
    return left < header ? 0 : text(kind, header, big_endian(header));
  };
  const auto other = [&](size_t length) -> size_t {
    if (left < length) return 0;
    element.kind = Element::Kind::kOther;
    return at + 1 + length;
  };
  const unsigned char head = data[0];
  if (head <= 0x7f) {
    element.kind = Element::Kind::kUnsigned;
    element.number = head;
    return at + 1;
  }
  if ((head & 0xe0) == 0xa0) return text(Element::Kind::kText, 0, head & 0x1f);
  switch (head) {
    case 0xc2:
    case 0xc3:
      element.kind = Element::Kind::kBool;
      element.number = head & 1;
      return at + 1;
    case 0xc4:
      return sized(Element::Kind::kBytes, 1);
    case 0xc5:
      return sized(Element::Kind::kBytes, 2);
    case 0xc6:
      return sized(Element::Kind::kBytes, 4);
    case 0xca:
      return other(4);  // a float
    case 0xcb:
      return other(8);
    case 0xcc:
      return number(1, false);
    case 0xcd:
      return number(2, false);
    case 0xce:
      return number(4, false);
    case 0xcf:
      return number(8, false);
    case 0xd0:
      return number(1, true);
    case 0xd1:
      return number(2, true);
    case 0xd2:
      return number(4, true);
    case 0xd3:
      return number(8, true);
    case 0xd9:
      return sized(Element::Kind::kText, 1);
    case 0xda:
      return sized(Element::Kind::kText, 2);
    case 0xdb:
      return sized(Element::Kind::kText, 4);
    default:
      // Nil and small negative numbers; else arrays, maps, extensions.
      return head == 0xc0 || head >= 0xe0 ? other(0) : 0;
  }
}

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
