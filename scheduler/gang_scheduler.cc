#include "scheduler/gang_scheduler.h"

#include <algorithm>
#include <utility>

namespace baton::scheduler {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How often a gang in line is looked at again when nothing happens; what it is owed changes slowly.
constexpr Duration kLookEvery = milliseconds(5);
// The renewal is decided this long before the end, for the extension to arrive in time.
constexpr Duration kRenewBefore = milliseconds(4);
// What ranks that are behind get to catch up. When they have run past the others, who are now
// behind, those get less: the less a rank runs past what its peers wait for, the sooner all stand
// at the same place. The last is wire::kSingleLaunch. Those that are behind so many times in a row
// are far behind, and get more.
constexpr Duration kWindow = milliseconds(1);
constexpr int64_t kWindowShrinks = 4;
constexpr uint32_t kWindowsToGrow = 8;
constexpr int64_t kWindowGrows = 2;
// When kernels end is predicted roughly. Ranks that do not wait for each other, and are let on
// while one of their kernels still runs, have a kernel on one GPU or another for ever. So after so
// many windows without an end a kernel is waited for twice as long beyond its predicted end.
constexpr uint32_t kWindowsToDouble = 8;
constexpr uint32_t kDoublingsMost = 6;
// So many windows without an end, and it begins anew.
constexpr uint32_t kWindowsMax = 200;
// A drain is taken for stuck when nothing has changed for this long: a report needs that long to
// arrive.
constexpr Duration kStuckAfter = microseconds(300);
// However much work a rank says that it has left.
constexpr Duration kStuckAfterMax = milliseconds(50);
// When none is behind, all are let on, this long after they should have drained: twice as long each
// time that it did not help.
constexpr Duration kNoneBehind = milliseconds(5);

// A token that is shorter than so many meetings of its ranks at the end is none.
constexpr int kLeastMeetings = 4;

// As if its GPUs had been stepped never so often.
constexpr uint64_t kNotTended = ~uint64_t{0};

template <class Predicate>
bool AllOf(const std::vector<GangView>& views, Predicate predicate) {
  return std::all_of(views.begin(), views.end(), predicate);
}
template <class Predicate>
bool AnyOf(const std::vector<GangView>& views, Predicate predicate) {
  return std::any_of(views.begin(), views.end(), predicate);
}

bool Ranked(const GangView& view) { return view.rank != GangView::kUnranked; }
bool Holds(const GangView& view) { return view.holds; }
// Kept for the gang though its holder hangs.
bool Pinned(const GangView& view) { return view.reserved && view.overdue && Ranked(view); }

}  // namespace

void GangScheduler::Set(GangId id, std::vector<Member> members, bool complete) {
  Gang& gang = gangs_[id];
  for (Member left : gang.members) {
    const bool stays = std::any_of(members.begin(), members.end(), [&](const Member& member) {
      return member.pod == left.pod && member.gpu == left.gpu;
    });
    left.leaves = true;
    if (!stays) members.push_back(left);
  }
  gang.members = std::move(members);
  gang.complete = complete;
  gang.tended_at = kNotTended;
}

GangScheduler::Views GangScheduler::ViewsOf(const Gang& gang) {
  Views views;
  for (const Member& member : gang.members) views.push_back(member.gpu->Gang(member.pod));
  return views;
}

void GangScheduler::One(const Member& member, GangStep::Do act, Duration span,
                        policy::BehindBy behind) {
  (*step_)(*member.gpu, GangStep{member.pod, act, span, behind});
}

void GangScheduler::All(const Gang& gang, GangStep::Do act, Duration span) {
  for (const Member& member : gang.members) One(member, act, span);
}

// All stand in line; but not again on those of `seen`, which is added to, where that says nothing
// new. It gets all or none: so where it is furthest below its request counts on its other GPUs. But
// not where it asks for less, or others would pay for what it is owed there with their requests.
void GangScheduler::Wait(Gang& gang, std::set<const TokenScheduler*>* seen) {
  const Views views = ViewsOf(gang);
  for (size_t i = 0; i < views.size(); ++i) {
    policy::BehindBy behind = policy::BehindBy::kLittle;
    for (const GangView& other : views) {
      if (other.request <= views[i].request) behind = std::max(behind, other.behind);
    }
    Member& member = gang.members[i];
    const bool news = std::exchange(member.behind, behind) != behind;
    const bool unseen = seen == nullptr || seen->insert(member.gpu).second;
    if (unseen || news) One(member, GangStep::Do::kWait, Duration(0), behind);
  }
}

void GangScheduler::Tend(Instant now, const StepGpu& step) {
  now_ = std::max(now_, now);
  step_ = &step;
  if (now_ >= look_at_) {
    // Those in line are ranked anew: a holder has used more, a limit given back some.
    look_at_ = now_ + kLookEvery;
    std::set<const TokenScheduler*> seen;
    for (auto& entry : gangs_) {
      Gang& gang = entry.second;
      const bool looks = gang.state == State::kWaiting || gang.state == State::kReserved;
      if (looks && !Cut(gang)) Wait(gang, &seen);
    }
  }
  const uint64_t before = tended_;
  for (auto& entry : gangs_) {
    Gang& gang = entry.second;
    if (Cut(gang)) GiveUp(gang);
    if (!Due(gang)) continue;
    ++tended_;
    Tend(gang);
    gang.tended_at = Steps(gang);
  }
  if (tended_ != before) {
    Reserve();
    LetDrainedGo();
  }
  std::erase_if(gangs_, [](const auto& entry) { return entry.second.members.empty(); });
  step_ = nullptr;
}

uint64_t GangScheduler::Steps(const Gang& gang) {
  uint64_t steps = 0;
  for (const Member& member : gang.members) steps += member.gpu->steps();
  return steps;
}

// A gang is none of the business of what happens on other GPUs than its own.
bool GangScheduler::Due(const Gang& gang) const {
  const bool acts = gang.state == State::kHolding || gang.state == State::kClosing;
  const Instant at = std::min(gang.act_at, gang.state == State::kHolding ? gang.deadline : kNever);
  return (Steps(gang) != gang.tended_at || (acts && now_ >= at)) && !Cut(gang);
}

// Over a link that is cut nobody is told anything.
bool GangScheduler::Cut(const Gang& gang) {
  return std::any_of(gang.members.begin(), gang.members.end(),
                     [](const Member& member) { return member.gpu->cut(); });
}

// It ends its tokens, for one of its pods is deleted.
bool GangScheduler::Leaves(const Gang& gang) {
  return std::any_of(gang.members.begin(), gang.members.end(),
                     [](const Member& member) { return member.leaves; });
}

bool GangScheduler::Overlap(const Gang& a, const Gang& b) {
  return std::any_of(a.members.begin(), a.members.end(), [&](const Member& of_a) {
    return std::any_of(b.members.begin(), b.members.end(),
                       [&](const Member& of_b) { return of_a.gpu == of_b.gpu; });
  });
}

// While one of its GPUs cannot be told anything, the others are not kept for it.
void GangScheduler::GiveUp(Gang& gang) {
  if (gang.state != State::kReserved && gang.state != State::kWaiting) return;
  for (const Member& member : gang.members) {
    if (member.gpu->Gang(member.pod).reserved) One(member, GangStep::Do::kRelease);
  }
  gang.state = State::kWaiting;
  gang.ready_since = kNever;
}

void GangScheduler::Tend(Gang& gang) {
  if (gang.state == State::kIdle || gang.state == State::kWaiting) {
    for (const Member& member : gang.members) {
      if (member.leaves && member.gpu->Gang(member.pod).reserved) {
        One(member, GangStep::Do::kRelease);
      }
    }
    std::erase_if(gang.members, [](const Member& member) {
      return member.leaves && !member.gpu->Gang(member.pod).holds;
    });
  }
  // Who has come stands in line with the others.
  const bool changed = gang.tended_at == kNotTended;
  if (gang.state == State::kWaiting && changed) Wait(gang);
  Views views = ViewsOf(gang);
  const bool wants =
      gang.complete && !Leaves(gang) && AnyOf(views, [](const GangView& v) { return v.wants; });
  if ((gang.state == State::kIdle || gang.state == State::kWaiting) && AnyOf(views, Holds)) {
    // It held when this daemon was started anew.
    Wait(gang);
    BeginClosing(gang);
  }
  if (gang.state == State::kIdle && wants) {
    Wait(gang);
    gang.state = State::kWaiting;
    views = ViewsOf(gang);
  } else if (gang.state == State::kWaiting && !wants) {
    LetGo(gang, views, false);
    All(gang, GangStep::Do::kRest);
    gang.state = State::kIdle;
    gang.ready_since = kNever;
  }
  if (gang.state == State::kWaiting) {
    const bool ready = AllOf(views, [](const GangView& v) { return Ranked(v) && !v.overdue; });
    if (!ready) {
      gang.ready_since = kNever;
      CapClaims(gang, views);
    } else if (gang.ready_since == kNever) {
      gang.ready_since = now_;
    }
  }
  if (gang.state == State::kReserved) {
    if (!wants ||
        AnyOf(views, [](const GangView& v) { return v.overdue || !Ranked(v) || !v.reserved; })) {
      // Nobody waits for a gang that went, nor for a holder that hangs; who came meanwhile and is
      // to go before it, does; and one of the GPUs may be that of a gang found to hold it.
      LetGo(gang, views, wants);
      gang.state = State::kWaiting;
      gang.ready_since = kNever;
      Tend(gang);
      return;
    }
    if (AllOf(views, [](const GangView& v) { return v.free; })) {
      const Duration span =
          std::max(2 * wire::kSingleLaunch, std::min(Quota(gang, views), Left(gang)));
      All(gang, GangStep::Do::kGrant, span);
      gang.state = State::kHolding;
      gang.granted_at = now_;
      gang.deadline = now_ + span;
      gang.act_at = gang.deadline - std::min(span / 2, kRenewBefore);
      gang.ready_since = kNever;
    }
  }
  if (gang.state == State::kHolding) Hold(gang);
  if (gang.state == State::kClosing) {
    Claim(gang);
    Close(gang, ViewsOf(gang));
  }
}

// Ends what is reserved; but if the gang still `wants`, a GPU whose holder hangs stays pinned.
// Nobody can have that one meanwhile, and once it drains the gang is next. Otherwise the same pod
// would be granted again at once where no other single waits, and could keep the gang out for ever.
void GangScheduler::LetGo(const Gang& gang, const Views& views, bool wants) {
  for (size_t i = 0; i < views.size(); ++i) {
    const bool stays = wants && Pinned(views[i]);
    if (views[i].reserved && !stays) One(gang.members[i], GangStep::Do::kRelease);
  }
}

// No claim without bound where another of its GPUs is what it waits for: it could never use it, and
// gangs that do without that other GPU would never come before it.
void GangScheduler::CapClaims(const Gang& gang, const Views& views) {
  for (size_t i = 0; i < views.size(); ++i) {
    if (views[i].owed_much && !views[i].taken && !Pinned(views[i])) {
      One(gang.members[i], GangStep::Do::kCap);
    }
  }
}

// A pinned GPU that has drained goes to others unless its gang could reserve the rest just now.
void GangScheduler::LetDrainedGo() {
  for (const auto& entry : gangs_) {
    const Gang& gang = entry.second;
    if (gang.state == State::kWaiting && !Cut(gang)) LetGo(gang, ViewsOf(gang), true);
  }
}

// The longest that one of its GPUs would give it, and long enough that its ranks' meeting at the
// end costs no more than a tenth of it.
Duration GangScheduler::Quota(const Gang& gang, const Views& views) const {
  Duration quota = std::min(gang.closing * 10, options_.quota_max);
  for (const GangView& view : views) quota = std::max(quota, view.quota);
  for (const GangView& view : views) quota = std::min(quota, view.allowance);
  return std::max(2 * wire::kSingleLaunch, quota);
}

// How long it may hold until its GPUs are promised to others.
Duration GangScheduler::Left(const Gang& gang) const {
  return gang.until == kNever ? Duration::max() : gang.until - now_ - gang.closing;
}

// When the last gang that has one of its GPUs should have given it back.
Instant GangScheduler::FreeFrom(const Gang& gang) const {
  Instant from = now_;
  for (const auto& entry : gangs_) {
    const Gang& other = entry.second;
    if (&other == &gang || !Overlap(gang, other)) continue;
    if (other.state == State::kHolding) from = std::max(from, other.deadline + other.closing);
    if (other.state == State::kClosing) from = std::max(from, other.closing_since + other.closing);
    if (other.state == State::kReserved) {
      from = std::max(from, now_ + Quota(other, ViewsOf(other)) + other.closing);
    }
  }
  return from;
}

void GangScheduler::Hold(Gang& gang) {
  Views views = ViewsOf(gang);
  const bool idle = AllOf(views, [](const GangView& v) { return v.drained && !v.wants; });
  const bool revoked = AnyOf(views, [](const GangView& v) { return v.revoked; });
  // A pod that left takes its token along; one that came has its own with the others' next ones.
  const bool changed = Leaves(gang) || !AllOf(views, Holds);
  const Duration least = std::max(options_.quota_min, kLeastMeetings * gang.closing);
  for (const GangView& v : views) {
    gang.deadline = std::min(gang.deadline, std::max(v.ends, gang.granted_at + least));
  }
  if (idle || revoked || changed || now_ >= gang.deadline) {
    All(gang, GangStep::Do::kClose);
    BeginClosing(gang);
    return;
  }
  if (now_ < gang.act_at) return;
  gang.act_at = kNever;
  // The holder competes too, with the singles on each GPU and with the gangs that overlap it, as
  // things stand now.
  Wait(gang);
  views = ViewsOf(gang);
  bool again = AllOf(views, Ranked) && AnyOf(views, [](const GangView& v) { return v.wants; });
  for (const auto& entry : gangs_) {
    const Gang& other = entry.second;
    if (again && other.state == State::kWaiting && other.ready_since != kNever) {
      again = !GoesBefore(other, ViewsOf(other), gang, views);
    }
  }
  if (!again) return;
  const bool rival = AnyOf(views, [](const GangView& v) { return v.contended; });
  Duration more = rival ? Quota(gang, views) : options_.quota_max;
  for (const GangView& v : views) more = std::min(more, v.allowance - (gang.deadline - now_));
  more = std::min(more, Left(gang) - (gang.deadline - now_));
  if (more <= Duration(0)) return;
  All(gang, GangStep::Do::kExtend, more);
  gang.deadline += more;
  gang.act_at = gang.deadline - std::min(more / 2, kRenewBefore);
}

void GangScheduler::BeginClosing(Gang& gang) {
  gang.state = State::kClosing;
  gang.until = kNever;
  gang.closing_since = now_;
  gang.changed_at = now_;
  gang.window = kWindow;
  gang.windows = 0;
  gang.again = 0;
  gang.in_vain = 0;
  gang.behind.clear();
  gang.let_on.clear();
}

// Of a gang that held elsewhere when a daemon found it: its other GPUs are its own until it has
// drained, for a kernel there may wait for a launch here.
void GangScheduler::Claim(const Gang& gang) {
  for (const Member& member : gang.members) {
    const GangView view = member.gpu->Gang(member.pod);
    if (view.holds || view.taken || member.leaves) continue;
    if (!view.reserved) {
      One(member, GangStep::Do::kWait, Duration(0), member.behind);
      One(member, GangStep::Do::kReserve);
    }
    if (member.gpu->Gang(member.pod).free) One(member, GangStep::Do::kGrant);
  }
}

void GangScheduler::Close(Gang& gang, const Views& views) {
  gang.act_at = kNever;
  if (AllOf(views, [](const GangView& v) { return !v.holds || v.drained; })) {
    All(gang, GangStep::Do::kRelease);
    gang.closing += (now_ - gang.closing_since - gang.closing) / 4;
    gang.state = State::kWaiting;  // unless it has nothing to do
    Tend(gang);
    return;
  }
  if (AnyOf(views, [](const GangView& v) { return v.holds && !v.closed; })) {
    if (AnyOf(views, [](const GangView& v) { return v.stuck; })) return;
    // What the others waited for has been launched.
    All(gang, GangStep::Do::kClose);
    gang.changed_at = now_;
    gang.act_at = now_ + kStuckAfter;
    return;
  }
  // Who holds nothing, and asks, is behind those who have not drained.
  Clients behind;
  for (const GangView& v : views) behind.insert(behind.end(), v.parked.begin(), v.parked.end());
  if (behind != gang.behind) {
    gang.behind = behind;
    gang.changed_at = std::max(gang.changed_at, now_);
  }
  gang.act_at = gang.changed_at + kStuckAfter * (1 + std::min(gang.windows, kWindowsMax) / 32);
  const uint32_t patience = std::min(gang.windows / kWindowsToDouble, kDoublingsMost);
  for (const GangView& v : views) {
    if (!v.stuck) continue;
    // Work that only takes its time is not stuck.
    const Instant most = behind.empty() ? kNever : gang.changed_at + kStuckAfterMax;
    gang.act_at = std::max(gang.act_at, std::min(v.done_at, most) + kStuckAfter * (1 << patience));
  }
  if (behind.empty()) gang.act_at += kNoneBehind * (1 << std::min(gang.in_vain, 10u));
  if (now_ >= gang.act_at) LetOn(gang, views, std::move(behind));
}

// Those that are behind may launch for a moment. All may where none is: threads of theirs wait for
// each other in a circle, and next time they may end elsewhere.
void GangScheduler::LetOn(Gang& gang, const Views& views, Clients behind) {
  const bool others = std::any_of(behind.begin(), behind.end(), [&](ClientId client) {
    return std::find(gang.let_on.begin(), gang.let_on.end(), client) == gang.let_on.end();
  });
  gang.again = others ? 0 : gang.again + 1;
  if (others && !gang.let_on.empty()) {
    gang.window = std::max(wire::kSingleLaunch, gang.window / kWindowShrinks);
  } else if (gang.again > 0 && gang.again % kWindowsToGrow == 0) {
    gang.window = std::min(kWindow, gang.window * kWindowGrows);
  }
  if (++gang.windows % kWindowsMax == 0 || behind.empty()) gang.window = kWindow;
  gang.in_vain = behind.empty() ? gang.in_vain + 1 : 0;
  for (size_t i = 0; i < views.size(); ++i) {
    if (!behind.empty() && views[i].parked.empty()) continue;
    const auto act = behind.empty() ? GangStep::Do::kReopenAll : GangStep::Do::kReopen;
    One(gang.members[i], act, gang.window);
  }
  gang.let_on = std::move(behind);
  gang.changed_at = now_ + gang.window;
  gang.act_at = gang.changed_at + kStuckAfter;
}

// Of two gangs that share a GPU: which goes first there.
bool GangScheduler::GoesBefore(const Gang& a, const Views& of_a, const Gang& b, const Views& of_b) {
  for (size_t i = 0; i < a.members.size(); ++i) {
    for (size_t j = 0; j < b.members.size(); ++j) {
      if (a.members[i].gpu == b.members[j].gpu) return of_a[i].rank < of_b[j].rank;
    }
  }
  return false;
}

// In their order, each gang that is ready reserves its GPUs. Where one of them belongs to another
// gang still, those that come later may have the rest, if they are done when that one is: so nobody
// waits for who came later, and gangs that have no GPU in common end together and run side by side.
void GangScheduler::Reserve() {
  struct Ready {
    Gang* gang;
    Views views;
  };
  std::vector<Ready> ready;
  for (auto& entry : gangs_) {
    Gang& gang = entry.second;
    if (gang.state == State::kWaiting && gang.ready_since != kNever) {
      ready.push_back({&gang, ViewsOf(gang)});
    }
  }
  std::stable_sort(ready.begin(), ready.end(), [](const Ready& a, const Ready& b) {
    return a.gang->ready_since < b.gang->ready_since;
  });
  std::map<const TokenScheduler*, Instant> promised;  // to gangs of before, from when on
  while (!ready.empty()) {
    const auto first = [&](const Ready& r) {
      return std::none_of(ready.begin(), ready.end(), [&](const Ready& other) {
        return other.gang != r.gang && GoesBefore(*other.gang, other.views, *r.gang, r.views);
      });
    };
    auto next = std::find_if(ready.begin(), ready.end(), first);
    if (next == ready.end()) next = ready.begin();
    Gang& gang = *next->gang;
    ready.erase(next);
    Instant until = kNever;
    bool blocked = false;
    for (const Member& member : gang.members) {
      const auto at = promised.find(member.gpu);
      if (at != promised.end()) until = std::min(until, at->second);
      blocked |= member.gpu->Gang(member.pod).taken;
    }
    if (Cut(gang)) continue;
    if (blocked && until == kNever) {
      const Instant from = FreeFrom(gang);
      for (const Member& member : gang.members) promised[member.gpu] = from;
    }
    if (blocked) {
      CapClaims(gang, ViewsOf(gang));
      continue;
    }
    gang.until = until;
    if (Left(gang) < std::max(options_.quota_min, 2 * gang.closing)) continue;
    All(gang, GangStep::Do::kReserve);
    gang.state = State::kReserved;
    Tend(gang);
  }
}

Instant GangScheduler::wakeup() const {
  Instant at = kNever;
  for (const auto& entry : gangs_) {
    const Gang& gang = entry.second;
    if (Cut(gang)) continue;
    switch (gang.state) {
      case State::kIdle:
        break;
      case State::kWaiting:
      case State::kReserved:
        at = std::min(at, look_at_);
        break;
      case State::kHolding:
        at = std::min({at, gang.act_at, gang.deadline});
        break;
      case State::kClosing:
        at = std::min(at, gang.act_at);
        break;
    }
  }
  return at;
}

std::optional<std::string> GangScheduler::Invariants() const {
  for (const auto& [id, gang] : gangs_) {
    if (gang.members.empty()) return "a gang without members";
    if (Cut(gang) || gang.tended_at != Steps(gang)) continue;
    const Views views = ViewsOf(gang);
    const auto kept = [](const GangView& v) { return v.reserved || v.holds; };
    switch (gang.state) {
      case State::kIdle:
        if (AnyOf(views, kept)) return "a gang that does not ask has a GPU";
        break;
      case State::kWaiting:
        if (AnyOf(views, Holds)) return "a gang that waits holds a GPU";
        if (!AllOf(views, [](const GangView& v) { return !v.reserved || Pinned(v); })) {
          return "a gang that waits keeps a GPU whose holder does not hang";
        }
        break;
      case State::kReserved:
        if (AnyOf(views, Holds)) return "a gang that waits for its GPUs holds one";
        if (!AllOf(views, kept)) return "a gang has reserved some of its GPUs, not all";
        break;
      case State::kHolding:
        if (!AllOf(views, Holds)) return "a gang holds some of its GPUs, not all";
        if (gang.deadline == kNever) return "a gang holds for ever";
        break;
      case State::kClosing:
        if (!AnyOf(views, Holds)) return "a gang that holds nothing ends its tokens";
        break;
    }
  }
  return std::nullopt;
}

}  // namespace baton::scheduler
