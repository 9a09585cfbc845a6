// The files in which batond keeps its state: whatever a disk or an older version made of them.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "backend/holder_file.h"
#include "backend/pods_text.h"
#include "backend/usage_book.h"
#include "base/hash.h"
#include "tests/fuzz/target.h"
#include "tests/temp_folder.h"

namespace baton::fuzz {
namespace {

const TempFolder& StateFolder() {
  static const MemoryFolder folder;
  return folder;
}

// What was moved aside, of which only so many are kept.
void ForgetDamaged(const std::string& path) { unlink((path + ".damaged").c_str()); }

void CheckPods(const backend::PodsImage& image) {
  backend::Pods pods;
  if (!pods.Restore(image)) return;
  const std::string written = backend::WritePodsText(pods, 3);
  uint64_t generation = 0;
  auto read = backend::ReadPodsText(written, generation);
  BATON_CHECK(read && generation == 3);
  backend::Pods again;
  BATON_CHECK(again.Restore(std::move(*read)));
  BATON_CHECK(backend::WritePodsText(again, 3) == written);
  for (const auto& [id, pod] : pods.all()) {
    BATON_CHECK(policy::Validated(pod.share));
    BATON_CHECK(pods.FindByName(pod.name) == &pod && pods.FindByTicket(pod.ticket) == &pod);
    BATON_CHECK(!pod.gpus.empty() && pod.vgpus.size() == pod.gpus.size());
  }
}

// The lines of `text` as records of generation 3: with a number and a checksum that are good.
std::string Numbered(std::string_view text) {
  std::string records;
  for (uint64_t number = 0; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::string numbered = fmt::format("{} {}", number, line);
    records += fmt::format("{:016x} {}\n", HashOf("3 " + numbered), numbered);
  }
  return records;
}

// As it is; where that is no pods file, below a first line of version 1 that fits, or as the
// records of a later one.
FUZZ_TARGET(pods_file) {
  uint64_t generation = 0;
  auto image = backend::ReadPodsText(input, generation);
  if (!image) {
    image = backend::ReadPodsText(fmt::format("baton pods 1 {:016x}\n{}\n", HashOf(input), input),
                                  generation);
  }
  if (!image) {
    image = backend::ReadPodsText(
        backend::PodsFirstLine(3) + Numbered(std::string(input) + "\n{\"end\": true}"), generation);
  }
  if (image) CheckPods(*image);
}

// A journal as it is, or with a first line, numbers and checksums that fit.
FUZZ_TARGET(pods_journal) {
  for (const std::string& text :
       {std::string(input), backend::JournalFirstLine(3) + Numbered(input)}) {
    backend::PodsImage image;
    const auto read = backend::ReadJournalText(text, 3, image);
    if (!read) continue;
    BATON_CHECK(read->records <= static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n')));
    CheckPods(image);
    // Whatever is cut off, what was good before the cut still is.
    backend::PodsImage shorter;
    const auto cut = backend::ReadJournalText(text.substr(0, text.size() / 2), 3, shorter);
    if (cut) BATON_CHECK(cut->records <= read->records);
  }
}

// The first byte says whether the header is made to fit: a checksum is hard to guess.
FUZZ_TARGET(holder_file) {
  if (input.empty()) return;
  constexpr std::string_view kMagic("baton holder 2\n\0", 16);
  constexpr size_t kChecked = 24;
  std::string text(input.substr(1));
  if (input[0] != 'r' && text.size() > kChecked) {
    text.replace(0, kMagic.size(), kMagic);
    const uint64_t checksum = HashOf(std::string_view(text).substr(kChecked));
    text.replace(kMagic.size(), sizeof checksum, reinterpret_cast<const char*>(&checksum),
                 sizeof checksum);
  }
  const std::string path = StateFolder().Write("gpu.holder", text);
  backend::HolderFile file;
  if (!file.Open(path, "boot", input[0] != 'f')) return;  // of a newer version
  BATON_CHECK(file.members().size() <= backend::HolderFile::kMembersMax);
  const uint64_t epoch = file.epoch() + 1;
  BATON_CHECK(file.Store(epoch, {.pod = 1, .pid = 2, .start_time = 3, .incarnation = 4}));
  backend::HolderFile again;
  BATON_CHECK(again.Open(path, "boot", true) == "");
  BATON_CHECK(again.epoch() == epoch && again.members().size() == 1);
  ForgetDamaged(path);
}

FUZZ_TARGET(usage_book) {
  constexpr size_t kStep = 64 << 10;
  constexpr std::string_view kMagic("baton usage 3\n\0\0", 16);
  if (input.empty()) return;
  std::string text(input.substr(1));
  if (input[0] != 'r') text.replace(0, std::min(kMagic.size(), text.size()), kMagic);
  const std::string path = StateFolder().Write("usage", text);
  // The book is as long as its steps; what a disk has not written is zeros.
  BATON_CHECK(truncate(path.c_str(), static_cast<off_t>((text.size() / kStep + 1) * kStep)) == 0);
  std::string identity;
  for (int opened = 0; opened < 2; ++opened) {
    backend::UsageBook book;
    if (!book.Open(path)) break;  // of a newer version
    BATON_CHECK(book.degraded().empty() && book.identity().size() == 32);
    if (opened > 0) BATON_CHECK(book.identity() == identity);
    identity = book.identity();
    (void)book.NewestHold(7);
    const uint64_t pod = book.LargestPod();
    backend::UsageEntry& total = book.At(PodId{pod}, 7, 0);
    backend::UsageEntry& last = book.At(PodId{pod}, 7, 1);
    book.Begin(total, last);
    total.usage.held_ns = 5;
    last.usage.held_ns = 5;
    book.End();
    BATON_CHECK(book.Find(PodId{pod}, 7, 0)->usage.held_ns == 5);
    if (opened > 0) book.Drop(PodId{pod}, 0);
  }
  unlink(path.c_str());
  ForgetDamaged(path);
}

}  // namespace
}  // namespace baton::fuzz
