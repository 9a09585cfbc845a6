// The files in which batond keeps its state: whatever a disk or an older version made of them.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "backend/holder_file.h"
#include "backend/pods.h"
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

// As it is, and where that is no pods file, below a first line that fits.
FUZZ_TARGET(pods_file) {
  backend::Pods pods;
  std::string text(input);
  if (!pods.Load(text)) text = fmt::format("baton pods 1 {:016x}\n{}\n", HashOf(input), input);
  if (!pods.Load(text)) return;
  const std::string saved = pods.Save();
  backend::Pods again;
  BATON_CHECK(again.Load(saved));
  BATON_CHECK(again.Save() == saved);
  for (const auto& [id, pod] : pods.all()) {
    BATON_CHECK(policy::Validated(pod.share));
    BATON_CHECK(pods.FindByName(pod.name) == &pod && pods.FindByTicket(pod.ticket) == &pod);
    BATON_CHECK(!pod.gpus.empty() && pod.vgpus.size() == pod.gpus.size());
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
