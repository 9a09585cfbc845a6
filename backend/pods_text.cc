#include "backend/pods_text.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "backend/state_versions.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/nesting.h"
#include "base/team_path.h"

namespace baton::backend {
namespace {

using nlohmann::json;

constexpr std::string_view kPodsFormat = "baton pods ";
constexpr uint64_t kPodsVersion = 2;
constexpr std::string_view kJournalFormat = "baton pods journal ";
constexpr uint64_t kJournalVersion = 1;
constexpr std::string_view kVersion1 = "baton pods 1 ";
constexpr size_t kPodsDepthMax = 32;
constexpr int64_t kTimeMax = int64_t{1} << 50;  // milliseconds since 1970
constexpr size_t kChecksum = 16;                // characters

tl::unexpected<Error> Bad(std::string why) { return Fail(ErrorCode::kInvalid, std::move(why)); }

tl::unexpected<Error> Newer() {
  return Fail(ErrorCode::kDenied, "a newer version of Baton wrote it");
}

// The conversion of a number that does not fit is not an error of JSON's own.
template <class N>
N NumberOf(const json& value) {
  const bool fits = value.is_number_unsigned()  ? std::in_range<N>(value.get<uint64_t>())
                    : value.is_number_integer() ? std::in_range<N>(value.get<int64_t>())
                                                : false;
  if (!fits) throw std::out_of_range("a number is out of range: " + value.dump().substr(0, 64));
  return static_cast<N>(value.is_number_unsigned() ? value.get<uint64_t>()
                                                   : static_cast<uint64_t>(value.get<int64_t>()));
}

template <class N>
N NumberAt(const json& entry, const char* key) {
  return NumberOf<N>(entry.at(key));
}

template <class N>
N NumberAt(const json& entry, const char* key, N absent) {
  const auto at = entry.find(key);
  return at == entry.end() ? absent : NumberOf<N>(*at);
}

policy::Share ShareAt(const json& entry, const char* key) {
  return policy::Share(NumberAt<uint32_t>(entry, key));
}

std::vector<std::string> TextsAt(const json& entry, const char* key) {
  return entry.value(key, std::vector<std::string>{});
}

// Keys that this version does not know are of a later one.
Result<void> ReadAsked(const json& asked, Pod& pod) {
  for (const auto& [key, value] : asked.items()) {
    const spec::PodField* field = spec::FindPodField(key);
    if (field == nullptr) continue;
    if (auto read = spec::ReadField(*field, value, pod); !read) return read;
  }
  return {};
}

json PodRow(const Pod& pod) {
  json vgpus = json::array();
  for (const PodVgpu& vgpu : pod.vgpus) {
    json row{{"share", vgpu.fit.share.millionths()},
             {"memory_mib", vgpu.fit.memory_mib},
             {"slot", vgpu.fit.slot}};
    if (vgpu.memory_peak != 0) row["memory_peak"] = vgpu.memory_peak;
    if (!vgpu.device.empty()) row["device"] = vgpu.device;
    if (!vgpu.before.empty()) row["before"] = vgpu.before;
    vgpus.push_back(std::move(row));
  }
  json row{{"id", pod.id.value},
           {"gpus", pod.gpus},
           {"mode", pod.mode},
           {"vgpus", std::move(vgpus)},
           {"asked", spec::WriteFields(pod)}};
  if (pod.gang_met) row["gang_met"] = true;
  if (!pod.from_file.empty()) row["from_file"] = pod.from_file;
  if (!pod.lease.id.empty()) {
    row["lease"] = {
        {"id", pod.lease.id}, {"until_ms", pod.lease.until_ms}, {"term_s", pod.lease.term_s}};
  }
  return row;
}

// Of version 1, what is not in "asked" where an older one wrote it.
void ReadVersion1(const json& entry, Pod& pod) {
  pod.name = entry.at("name");
  pod.share.request = ShareAt(entry, "request");
  pod.share.limit = ShareAt(entry, "limit");
  pod.share.priority = static_cast<policy::Priority>(NumberAt<uint8_t>(entry, "priority"));
  pod.memory_cap = NumberAt<uint64_t>(entry, "memory");
  pod.memory_part = policy::Share(NumberAt<uint32_t>(entry, "memory_part", 0));
  pod.team = TeamPath(entry.at("team").get<std::string>());
  pod.user = entry.value("user", "");
  pod.name_space = entry.value("namespace", "");
  pod.ticket = entry.at("ticket");
  pod.uid = NumberAt<int64_t>(entry, "uid");
  pod.cgroup = entry.value("cgroup", "");
  pod.independent = entry.value("independent", false);
}

// The rest, of either version.
Result<void> ReadRow(const json& entry, const json& asked, Pod& pod) {
  pod.id = PodId{NumberAt<uint64_t>(entry, "id")};
  pod.gpus = entry.at("gpus").get<std::vector<std::string>>();
  // Files of before there were virtual GPUs: by turns, and placed anew where they are.
  pod.mode = entry.value("mode", std::string(spec::kTimeSlice));
  for (const json& row : entry.value("vgpus", json::array())) {
    PodVgpu vgpu;
    vgpu.fit = {ShareAt(row, "share"), NumberAt<uint32_t>(row, "memory_mib"), 0,
                NumberAt<uint32_t>(row, "slot")};
    vgpu.device = row.value("device", "");
    vgpu.memory_peak = NumberAt<uint64_t>(row, "memory_peak", 0);
    vgpu.before = TextsAt(row, "before");
    pod.vgpus.push_back(std::move(vgpu));
  }
  pod.vgpus.resize(pod.gpus.size());
  pod.gang_met = entry.value("gang_met", false);
  pod.from_file = entry.value("from_file", "");
  if (const auto lease = entry.find("lease"); lease != entry.end()) {
    pod.lease = {lease->at("id"), NumberAt<int64_t>(*lease, "until_ms"),
                 NumberAt<uint32_t>(*lease, "term_s")};
    if (pod.lease.until_ms < 0 || pod.lease.until_ms > kTimeMax) {
      return Bad("a lease ends at no time");
    }
  }
  if (auto read = ReadAsked(asked, pod); !read) return read;
  // It is written by the table, which must take it again.
  spec::PodRequest written;
  if (auto read = spec::ReadFields(spec::WriteFields(pod), written); !read) return read;
  auto share = policy::Validated(pod.share);
  if (!share) return tl::unexpected(share.error());
  pod.share = *share;
  if (pod.share.priority > policy::Priority::kIdle || pod.gpus.empty()) {
    return Bad("a pod has no GPU, or an unknown priority");
  }
  if (pod.name.empty() || pod.ticket.empty()) return Bad("a pod has no name, or no ticket");
  return spec::CheckShare(pod.share, pod.mode, pod.in_gang());
}

json DepartedRow(PodId id, const DepartedPod& pod) {
  return {{"id", id.value},
          {"name", pod.owner.pod},
          {"team", pod.owner.team},
          {"user", pod.owner.user},
          {"namespace", pod.owner.name_space},
          {"gpus", pod.gpus}};
}

void ReadDeparted(const json& entry, PodsImage& image) {
  image.departed[PodId{NumberAt<uint64_t>(entry, "id")}] = {
      {entry.at("name"), entry.at("namespace"), TeamPath(entry.at("team").get<std::string>()),
       entry.at("user")},
      entry.at("gpus").get<std::vector<std::string>>()};
}

void ReadCordoned(const json& root, PodsImage& image) {
  image.cordoned.clear();
  for (const std::string& gpu : TextsAt(root, "cordoned")) image.cordoned.insert(gpu);
}

// What a record says of others.
struct Marks {
  bool end = false;    // it is the last one of its file
  uint64_t group = 0;  // so many after it count together
};

Result<void> Apply(std::string_view text, PodsImage& image, Marks& marks) {
  if (!JsonNestsWithin(text, kPodsDepthMax)) return Bad("its values lie too deep in each other");
  try {
    const json record = json::parse(text);
    image.last_id = std::max(image.last_id, NumberAt<uint64_t>(record, "last_id", 0));
    if (const auto gone = record.find("gone"); gone != record.end()) {
      image.pods.erase(PodId{NumberOf<uint64_t>(*gone)});
    }
    if (const auto forget = record.find("forget"); forget != record.end()) {
      image.departed.erase(PodId{NumberOf<uint64_t>(*forget)});
    }
    if (const auto row = record.find("pod"); row != record.end()) {
      Pod pod;
      if (auto read = ReadRow(*row, row->at("asked"), pod); !read) return read;
      const PodId id = pod.id;
      image.pods.insert_or_assign(id, std::move(pod));
    }
    if (const auto row = record.find("departed"); row != record.end()) ReadDeparted(*row, image);
    if (record.contains("cordoned")) ReadCordoned(record, image);
    marks = {record.value("end", false), NumberAt<uint64_t>(record, "group", 0)};
  } catch (const std::exception& e) {
    return Bad(e.what());
  }
  return {};
}

std::string Checksum(uint64_t generation, std::string_view numbered) {
  return fmt::format("{:016x}", HashOf(fmt::format("{} {}", generation, numbered)));
}

// The JSON of a line; empty: it is not the record of this number.
std::string_view Checked(std::string_view line, uint64_t generation, uint64_t number) {
  const std::string numbered = fmt::format("{} ", number);
  if (line.size() <= kChecksum + 1 + numbered.size() || line[kChecksum] != ' ') return {};
  const std::string_view rest = line.substr(kChecksum + 1);
  if (!rest.starts_with(numbered) || Checksum(generation, rest) != line.substr(0, kChecksum)) {
    return {};
  }
  return rest.substr(numbered.size());
}

// Takes the next line off `text`. False: it has no end.
bool TakeLine(std::string_view& text, std::string_view& line) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return false;
  line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return true;
}

// Whether so many lines have an end.
bool HasLines(std::string_view text, uint64_t count) {
  std::string_view line;
  while (count > 0 && TakeLine(text, line)) --count;
  return count == 0;
}

// Records up to the end of the text, or the first bad one. `end`: the last one said that it is.
JournalRead ReadRecords(std::string_view text, uint64_t generation, PodsImage& image, bool& end) {
  JournalRead read;
  Marks marks;
  while (!text.empty()) {
    std::string_view line;
    if (!TakeLine(text, line)) {
      read.torn = true;
      break;
    }
    const std::string_view record = Checked(line, generation, read.records);
    if (marks.end || record.empty()) {
      read.damage = marks.end
                        ? "there is more after its end"
                        : fmt::format("the checksum of record {} does not match", read.records);
      break;
    }
    if (auto applied = Apply(record, image, marks); !applied) {
      read.damage = applied.error().message;
      break;
    }
    ++read.records;
    if (marks.group != 0 && !HasLines(text, marks.group)) {
      read.torn = true;
      break;
    }
  }
  end = marks.end;
  return read;
}

Result<PodsImage> ReadTextOfVersion1(std::string_view text) {
  std::string_view line;
  if (!TakeLine(text, line)) return Bad("this is not a pods file");
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (line.substr(kVersion1.size()) != fmt::format("{:016x}", HashOf(text))) {
    return Bad("its checksum does not match");
  }
  if (!JsonNestsWithin(text, kPodsDepthMax)) return Bad("its values lie too deep in each other");
  PodsImage image;
  try {
    const json root = json::parse(text);
    image.last_id = NumberAt<uint64_t>(root, "last_id");
    for (const json& entry : root.at("pods")) {
      Pod pod;
      ReadVersion1(entry, pod);
      const auto asked = entry.find("asked");
      if (auto read = ReadRow(
              entry, asked != entry.end() ? *asked : entry.value("wishes", json::object()), pod);
          !read) {
        return tl::unexpected(read.error());
      }
      const PodId id = pod.id;
      if (!image.pods.emplace(id, std::move(pod)).second) return Bad("a pod's id is listed twice");
    }
    ReadCordoned(root, image);
    for (const json& entry : root.value("departed", json::array())) ReadDeparted(entry, image);
  } catch (const std::exception& e) {
    return Bad(e.what());
  }
  return image;
}

// The number after `format` and a version; nothing where the line does not say just that.
std::optional<uint64_t> GenerationOf(std::string_view line, std::string_view first) {
  if (!line.starts_with(first)) return std::nullopt;
  line.remove_prefix(first.size());
  uint64_t generation = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), generation);
  if (error != std::errc() || end != line.data() + line.size()) return std::nullopt;
  return generation;
}

std::string First(std::string_view format, uint64_t version) {
  return fmt::format("{}{} ", format, version);
}

}  // namespace

std::string PodsFirstLine(uint64_t generation) {
  return fmt::format("{}{}\n", First(kPodsFormat, kPodsVersion), generation);
}

std::string JournalFirstLine(uint64_t generation) {
  return fmt::format("{}{}\n", First(kJournalFormat, kJournalVersion), generation);
}

void PodsRecords::Add(const json& record) {
  const std::string numbered =
      fmt::format("{} {}", number_++, record.dump(-1, ' ', false, json::error_handler_t::replace));
  text_ += fmt::format("{} {}\n", Checksum(generation_, numbered), numbered);
}

void PodsRecords::AddPod(const Pod& pod) {
  Add({{"last_id", pods_.last_id()}, {"pod", PodRow(pod)}});
}

void PodsRecords::AddChanged(PodId id, bool departed_too) {
  if (const Pod* pod = pods_.Find(id)) {
    return AddPod(*pod);
  }
  json record{{"last_id", pods_.last_id()}, {"gone", id.value}};
  if (const auto it = pods_.departed().find(id); departed_too && it != pods_.departed().end()) {
    record["departed"] = DepartedRow(id, it->second);
  }
  Add(record);
}

void PodsRecords::AddDeparted(PodId id) {
  const auto it = pods_.departed().find(id);
  if (it != pods_.departed().end()) {
    Add({{"last_id", pods_.last_id()}, {"departed", DepartedRow(id, it->second)}});
  } else {
    Add({{"last_id", pods_.last_id()}, {"forget", id.value}});
  }
}

void PodsRecords::AddCordoned() {
  Add({{"last_id", pods_.last_id()}, {"cordoned", pods_.cordoned()}});
}

void PodsRecords::AddGroup(size_t size) {
  if (size > 1) Add({{"group", size}});
}

void PodsRecords::AddEnd() { Add({{"last_id", pods_.last_id()}, {"end", true}}); }

bool IsNewerPods(std::string_view text) {
  return IsOfNewerVersion(text, kPodsFormat, kPodsVersion) ||
         IsOfNewerVersion(text, kJournalFormat, kJournalVersion);
}

Result<PodsImage> ReadPodsText(std::string_view text, uint64_t& generation) {
  generation = 0;
  if (IsOfNewerVersion(text, kPodsFormat, kPodsVersion)) return Newer();
  if (text.starts_with(kVersion1)) return ReadTextOfVersion1(text);
  std::string_view line;
  if (!TakeLine(text, line)) return Bad("this is not a pods file");
  const auto said = GenerationOf(line, First(kPodsFormat, kPodsVersion));
  if (!said) return Bad("this is not a pods file");
  PodsImage image;
  bool end = false;
  const JournalRead read = ReadRecords(text, *said, image, end);
  if (!read.damage.empty()) return Bad(read.damage);
  if (!end || read.torn) return Bad("its end is missing");
  generation = *said;
  return image;
}

std::string WritePodsText(const Pods& pods, uint64_t generation) {
  PodsRecords records(pods, generation, 0);
  records.text() = PodsFirstLine(generation);
  records.AddCordoned();
  for (const auto& [id, pod] : pods.all()) {
    if (!pod.throw_away) records.AddPod(pod);
  }
  for (const auto& [id, departed] : pods.departed()) records.AddDeparted(id);
  records.AddEnd();
  return std::move(records.text());
}

Result<JournalRead> ReadJournalText(std::string_view text, uint64_t generation, PodsImage& image) {
  if (IsOfNewerVersion(text, kJournalFormat, kJournalVersion)) return Newer();
  const std::string first = JournalFirstLine(generation);
  // Killed before it had its first line.
  if (text.size() < first.size() && std::string_view(first).starts_with(text)) {
    JournalRead cut;
    cut.torn = true;
    return cut;
  }
  if (!text.starts_with(first)) return Bad("it does not belong to pods.json");
  bool end = false;
  return ReadRecords(text.substr(first.size()), generation, image, end);
}

}  // namespace baton::backend
