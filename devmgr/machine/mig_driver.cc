#include "devmgr/machine/mig_driver.h"

#include <algorithm>
#include <set>
#include <sstream>

namespace baton::devmgr {
namespace {

using Part = MigMode::Part;

// What a mark says: "1g.10gb 3 1".
std::string MarkOf(const Part& part) {
  return part.profile + " " + std::to_string(part.start) + " " + std::to_string(part.slices);
}

bool ParseMark(const std::string& mark, Part* part) {
  std::istringstream words(mark);
  std::string more;
  return (words >> part->profile >> part->start >> part->slices) && !(words >> more);
}

const MigInstance* InPlace(const std::vector<MigInstance>& instances, const Part& part) {
  for (const MigInstance& instance : instances) {
    if (instance.start == part.start && instance.slices == part.slices &&
        instance.profile == part.profile) {
      return &instance;
    }
  }
  return nullptr;
}

const MigInstance* InTheWay(const std::vector<MigInstance>& instances, const Part& part) {
  for (const MigInstance& instance : instances) {
    if (instance.start < part.start + part.slices &&
        part.start < instance.start + instance.slices) {
      return &instance;
    }
  }
  return nullptr;
}

std::string Where(const std::string& card, const Part& part) {
  return part.profile + " at slice " + std::to_string(part.start) + " of " + card;
}

}  // namespace

Result<std::string> MigDriver::Create(const Card& card, const Vgpu& vgpu) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto made = Make(card, vgpu);
  if (!made) return tl::unexpected<Error>(made.error());
  return std::move(made->device);
}

Result<MigDriver::Made> MigDriver::Make(const Card& card, const Vgpu& vgpu) {
  const auto part = mode_.PartOf(card, vgpu.fit.slot);
  if (!part) {
    return Fail(ErrorCode::kInvalid, "virtual GPU " + vgpu.id + " is in a MIG geometry of " +
                                         card.uuid + " that no template has; place it anew");
  }
  auto marks = marks_.Of(card.uuid);
  if (!marks) return tl::unexpected<Error>(marks.error());
  const std::string text = MarkOf(*part);
  auto mark = marks->find(vgpu.id);
  if (mark != marks->end() && mark->second != text) {
    // It was elsewhere on this GPU.
    const auto gone = TakeAway(card.uuid, vgpu.id, mark->second);
    if (!gone) return tl::unexpected<Error>(gone.error());
    mark = marks->end();
  }
  auto instances = control_.Instances(card.uuid);
  if (!instances) return tl::unexpected<Error>(instances.error());

  if (const MigInstance* there = InPlace(*instances, *part)) {
    const bool recorded = !vgpu.device.empty() && there->uuid == vgpu.device;
    if (mark != marks->end() || recorded) {
      if (mark == marks->end()) {
        if (const auto put = marks_.Put(card.uuid, vgpu.id, text); !put) {
          return tl::unexpected<Error>(put.error());
        }
        mark = marks->emplace(vgpu.id, text).first;
      }
      if (!there->uuid.empty()) return Made{there->uuid, false};
      // Half of it was made when somebody was interrupted.
      if (const auto gone = control_.Destroy(card.uuid, there->id); !gone) {
        return tl::unexpected<Error>(gone.error());
      }
      std::erase_if(*instances, [id = there->id](const MigInstance& i) { return i.id == id; });
    }
  }
  if (const MigInstance* other = InTheWay(*instances, *part)) {
    return Fail(ErrorCode::kUnavailable,
                "there is no room for " + Where(card.uuid, *part) + ": GPU instance " +
                    std::to_string(other->id) + " (" + other->profile + " at slice " +
                    std::to_string(other->start) +
                    ") is in the way, and was not made for this virtual GPU; take it away, or "
                    "place the pod elsewhere");
  }
  if (mark == marks->end()) {
    if (const auto put = marks_.Put(card.uuid, vgpu.id, text); !put) {
      return tl::unexpected<Error>(put.error());
    }
  }
  auto created = control_.Create(card.uuid, part->profile, part->start);
  if (!created) {
    // Refused for good: what is found in this place later is not ours. Else nobody knows.
    if (created.error().code == ErrorCode::kInvalid ||
        created.error().code == ErrorCode::kExhausted ||
        created.error().code == ErrorCode::kNotFound) {
      static_cast<void>(marks_.Remove(card.uuid, vgpu.id));
    }
    return Fail(created.error().code,
                "cannot make " + Where(card.uuid, *part) + ": " + created.error().message);
  }
  if (created->uuid.empty()) {
    return Fail(ErrorCode::kInternal, Where(card.uuid, *part) + " was made without a uuid");
  }
  return Made{std::move(created->uuid), true};
}

// Whether there was something to take away.
Result<bool> MigDriver::TakeAway(const std::string& card, const std::string& id,
                                 const std::string& mark) {
  Part part;
  bool was = false;
  if (ParseMark(mark, &part)) {
    const auto instances = control_.Instances(card);
    if (!instances && instances.error().code != ErrorCode::kNotFound) {
      return tl::unexpected<Error>(instances.error());
    }
    const MigInstance* there = instances ? InPlace(*instances, part) : nullptr;
    if (there != nullptr) {
      if (const auto gone = control_.Destroy(card, there->id); !gone) {
        return Fail(gone.error().code,
                    "cannot take away " + Where(card, part) + ": " + gone.error().message);
      }
      was = true;
    }
  }
  if (const auto removed = marks_.Remove(card, id); !removed) {
    return tl::unexpected<Error>(removed.error());
  }
  return was;
}

Result<void> MigDriver::Destroy(const Card& card, const Vgpu& vgpu) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto marks = marks_.Of(card.uuid);
  if (!marks) return tl::unexpected<Error>(marks.error());
  if (const auto mark = marks->find(vgpu.id); mark != marks->end()) {
    const auto gone = TakeAway(card.uuid, vgpu.id, mark->second);
    if (!gone) return tl::unexpected<Error>(gone.error());
    return {};
  }
  if (vgpu.device.empty()) return {};  // never made, or not by us
  // The mark is lost, but the map has the name of what was made.
  const auto instances = control_.Instances(card.uuid);
  if (!instances) {
    if (instances.error().code == ErrorCode::kNotFound) return {};
    return tl::unexpected<Error>(instances.error());
  }
  for (const MigInstance& instance : *instances) {
    if (instance.uuid == vgpu.device) return control_.Destroy(card.uuid, instance.id);
  }
  return {};
}

Result<std::vector<std::string>> MigDriver::Reconcile(const Card& card, std::vector<Vgpu>& known) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto marks = marks_.Of(card.uuid);
  if (!marks) return tl::unexpected<Error>(marks.error());
  std::vector<std::string> done;
  std::set<std::string> ids;
  for (const Vgpu& vgpu : known) ids.insert(vgpu.id);
  for (const auto& [id, mark] : *marks) {
    if (ids.count(id) != 0) continue;
    const auto gone = TakeAway(card.uuid, id, mark);
    if (!gone) {
      done.push_back("what was made for virtual GPU " + id +
                     ", which is not known any more, stays for now: " + gone.error().message);
    } else if (*gone) {
      done.push_back("took away a MIG instance of " + card.uuid + " (" + mark +
                     ") that was made for virtual GPU " + id + ", which is not known any more");
    }
  }
  for (Vgpu& vgpu : known) {
    auto made = Make(card, vgpu);
    if (!made) {
      vgpu.device.clear();
      done.push_back("virtual GPU " + vgpu.id + " has no MIG instance: " + made.error().message);
      continue;
    }
    if (made->anew) {
      done.push_back("made " + made->device + " on " + card.uuid + " for virtual GPU " + vgpu.id +
                     (vgpu.device.empty() ? ", which had none yet" : ", whose own was gone"));
    } else if (made->device != vgpu.device) {
      done.push_back(made->device + " on " + card.uuid + " is virtual GPU " + vgpu.id +
                     "'s, which had not been recorded");
    }
    vgpu.device = std::move(made->device);
  }
  return done;
}

}  // namespace baton::devmgr
