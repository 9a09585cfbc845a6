// Batches as bytes (MessagePack): for the spool and for the way to another batond. Arrays rather
// than maps, in the order of the structs' fields; a later version may append fields.
#include <nlohmann/json.hpp>

#include "ledger/ledger.h"

namespace baton::ledger {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr size_t kTextMax = 512;
// Of arrays in each other: the batch, its samples, a sample, its counters.
constexpr int kDepth = 4;

// Whether bytes hold values no deeper than that: reading what is deeper would take as much stack as
// its sender likes.
class Shallow : public nlohmann::json_sax<json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return false; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return false; }
  bool key(string_t&) override { return false; }
  bool end_object() override { return false; }
  bool start_array(size_t) override { return ++depth_ <= kDepth; }
  bool end_array() override { return --depth_, true; }
  bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }

 private:
  int depth_ = 0;
};

json Array(const Counters& c) {
  return {c.held_ns,  c.busy_ns, c.waited_ns,   c.unmanaged_ns, c.memory_mib_ms,
          c.launches, c.grants,  c.revocations, c.energy_j,     c.uncontended_ns};
}

std::string Text(const json& value) {
  std::string text = value.get<std::string>();
  if (text.size() > kTextMax) text.resize(kTextMax);
  return text;
}

}  // namespace

WallTime WallNow() {
  return std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

std::string EncodeBatch(const Batch& batch) {
  json samples = json::array();
  for (const Sample& s : batch.samples) {
    samples.push_back({s.pod, s.gpu, s.owner.pod, s.owner.name_space, s.owner.team, s.owner.user,
                       Array(s.total), s.memory_peak_mib});
  }
  json gpus = json::array();
  for (const GpuSample& g : batch.gpus) {
    gpus.push_back({g.uuid, g.model, g.memory_bytes, Nanos(g.idle), g.energy_j});
  }
  json all{kVersion,
           batch.source,
           batch.node,
           batch.seq,
           batch.to.time_since_epoch().count(),
           std::move(samples),
           std::move(gpus)};
  if (batch.since != WallTime{}) all.push_back(batch.since.time_since_epoch().count());
  std::string bytes;
  json::to_msgpack(all, bytes);
  return bytes;
}

Result<Batch> DecodeBatch(std::string_view bytes) {
  Shallow shallow;
  if (!json::sax_parse(bytes, &shallow, json::input_format_t::msgpack)) {
    return Fail(ErrorCode::kInvalid, "this is no batch: its values do not have a batch's form");
  }
  const json all = json::from_msgpack(bytes, true, false);
  try {
    if (all.at(0).get<int>() != kVersion) {
      return Fail(ErrorCode::kInvalid, "a batch of another version; update both ends");
    }
    Batch batch;
    batch.source = Text(all.at(1));
    batch.node = Text(all.at(2));
    batch.seq = all.at(3);
    batch.to = WallTime(std::chrono::milliseconds(all.at(4).get<int64_t>()));
    for (const json& s : all.at(5)) {
      Sample sample;
      sample.pod = s.at(0);
      sample.gpu = Text(s.at(1));
      sample.owner = {Text(s.at(2)), Text(s.at(3)), Text(s.at(4)), Text(s.at(5))};
      const json& c = s.at(6);
      sample.total = {c.at(0), c.at(1), c.at(2), c.at(3), c.at(4), c.at(5), c.at(6), c.at(7)};
      if (c.size() > 8) sample.total.energy_j = c.at(8);
      // A version before says nothing of it: its use is counted as contended.
      if (c.size() > 9) sample.total.uncontended_ns = c.at(9);
      sample.memory_peak_mib = s.at(7);
      batch.samples.push_back(std::move(sample));
    }
    for (const json& g : all.at(6)) {
      batch.gpus.push_back({Text(g.at(0)), Text(g.at(1)), g.at(2), Duration(g.at(3).get<int64_t>()),
                            g.size() > 4 ? g.at(4).get<int64_t>() : 0});
    }
    if (all.size() > 7) batch.since = WallTime(std::chrono::milliseconds(all.at(7).get<int64_t>()));
    return batch;
  } catch (const json::exception& e) {
    return Fail(ErrorCode::kInvalid, std::string("this is no batch: ") + e.what());
  }
}

}  // namespace baton::ledger
