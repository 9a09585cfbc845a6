#include "devmgr/placement/search.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace baton::devmgr {
namespace {

constexpr size_t kCards = VgpuRequest::kCardsMax;
constexpr size_t kModes = 16;  // bits of SearchOptions::mode_mask
// Steps before states are remembered.
constexpr uint32_t kForgetful = 64;
// Once there is a place, so many steps are spent on better ones.
constexpr uint32_t kPolish = 1'000;
// u^2 grows by at most 2 000 for each thousandth that is used: what is taken beyond what was wanted
// costs more than any fullness can make good.
constexpr int64_t kWaste = 2'000;
// Nor can there be less to lose by more than what was taken; where nobody could have used the rest
// of a GPU it is as much, and the waste must not win then.
constexpr int64_t kLossOfWaste = Mix::kLossUnit + 1;
// Millionths: what is expected is not known more exactly.
constexpr int64_t kUseStep = 50'000;

// What is left once the pod is there, as FreeNode says it.
int16_t FreeCpu(const NodeState& node, uint32_t milli) {
  if (node.info.cpu_milli == 0) return FreeNode::kEnough;
  const uint64_t used = node.cpu_used + milli;
  return FreeNode::Cpu(node.info.cpu_milli > used ? node.info.cpu_milli - used : 0);
}
int16_t FreeHost(const NodeState& node, uint64_t mib) {
  if (node.info.memory_mib == 0) return FreeNode::kEnough;
  const uint64_t used = node.memory_used + mib;
  return FreeNode::Host(node.info.memory_mib > used ? node.info.memory_mib - used : 0);
}

// What is taken of a GPU beyond what was wanted.
struct Waste {
  int64_t share = 0;  // millionths
  int64_t full = 0;   // thousandths, as fullness counts

  Waste& operator+=(const Waste& other) {
    share += other.share;
    full += other.full;
    return *this;
  }
};

Waste WasteOf(const PlacementPolicy& policy, const Card& card, const VgpuWant& want,
              const Fit& fit) {
  const auto full = [&](policy::Share share, uint64_t memory) {
    return Fullness(policy, share, policy::kWhole, memory, card.memory_mib);
  };
  Waste waste;
  waste.share = int64_t{fit.share.millionths()} - want.share.millionths();
  // Who wants the whole GPU without a word on memory may as well have all of that.
  const bool all = want.share == policy::kWhole && want.memory_mib == 0;
  if (!all && (waste.share > 0 || fit.memory_mib > want.memory_mib)) {
    waste.full = full(fit.share, fit.memory_mib) - full(want.share, want.memory_mib);
  }
  return waste;
}

// Candidate::cost. `squares`: what the sum of u^2 grows by.
int64_t CostOf(const SearchOptions& options, int64_t squares, int64_t loss, const Waste& waste,
               std::span<const Place> places) {
  const int64_t share = waste.share / 1'000;
  switch (options.policy->cards) {
    case Rule::kBinpack:
    case Rule::kFirstFit:
      return -squares + kWaste * (share + waste.full);
    case Rule::kSpread:
      return squares + kWaste * (share + waste.full);
    case Rule::kRandom: {
      uint64_t hash = options.salt;
      for (const Place& place : places) hash = Mixed(hash ^ (place.card + 1u));
      return static_cast<int64_t>(hash >> 1);
    }
    case Rule::kFragmentation:
    case Rule::kRemainder:
    case Rule::kScarcity:
      return loss + share * kLossOfWaste;
  }
  return 0;
}

// The same for one virtual GPU, which most pods are: no search, a look at each GPU.
std::optional<Candidate> SearchOne(const NodeState& node, const Want& want,
                                   const SearchOptions& options, SearchEnd* end) {
  const bool by_loss = ByLoss(options.policy->cards);
  const Mix::Losses* before = nullptr;
  if (by_loss) before = &LossesOf(node, *options.mix, options.policy->cards);
  const int16_t cpu = FreeCpu(node, options.cpu_milli);
  const int16_t host = FreeHost(node, options.memory_mib);
  std::optional<Candidate> best;
  struct Tried {  // GPUs in the same state come out the same
    size_t card;
    size_t mode;
    int64_t cost;
  };
  std::array<Tried, kCards> tried;
  size_t tries = 0;
  for (size_t c = 0; c < node.cards.size(); ++c) {
    const CardState& card = node.cards[c];
    // Without a look at the GPU itself, which is far away in memory.
    if (!(options.allowed >> c & 1) || want.share > policy::kWhole - card.use.share) continue;
    bool twin = false;
    for (size_t b = 0; b < c && !twin; ++b) {
      twin = node.kind[b] == node.kind[c] && (options.allowed >> b & 1) &&
             node.cards[b].use == card.use &&
             (!options.by_use || node.cards[b].beyond == card.beyond);
    }
    if (twin) continue;
    const VgpuWant wanted = want.On(*card.card);
    for (size_t m = 0; m < options.modes.size(); ++m) {
      if (!(card.serves >> m & 1) || !(options.mode_mask >> m & 1)) continue;
      if (card.use.vgpus > 0 && card.use.mode != m) continue;
      const auto fit = options.modes[m]->TryFit(*card.card, card.use, wanted);
      if (!fit) continue;
      const Place place{static_cast<uint8_t>(c), static_cast<uint8_t>(m), *fit};
      CardUse use = card.use;
      use.share += fit->share;
      use.memory_mib += fit->memory_mib;
      const int64_t was = node.full[c];
      const int64_t full = Fullness(*options.policy, use.share, policy::kWhole, use.memory_mib,
                                    card.card->memory_mib);
      Candidate candidate;
      candidate.spread = {1, 1, 1};
      const int64_t squares = full * full - was * was;
      candidate.fit = -squares;
      const auto last = tried.begin() + static_cast<std::ptrdiff_t>(tries);
      const auto same = std::find_if(tried.begin(), last, [&](const Tried& t) {
        return t.mode == m && node.cards[t.card].use == card.use &&
               node.cards[t.card].card->memory_mib == card.card->memory_mib &&
               node.cards[t.card].model == card.model;
      });
      if (by_loss && same != last) {
        candidate.cost = same->cost;
      } else {
        const Waste waste = WasteOf(*options.policy, *card.card, wanted, *fit);
        std::optional<int64_t> loss = 0;
        if (by_loss) {
          FreeNode free;
          SetFree(free, c, *card.card, use);
          Mix::Sum sum = node.sum;
          sum.cpu = cpu;
          sum.host = host;
          sum.Change({node.free.share[c], node.free.memory[c], node.free.part[c], 1},
                     {free.share[c], free.memory[c], free.part[c], 1});
          const int64_t limit =
              best && !options.by_use ? std::min(options.limit, best->cost) : options.limit;
          loss = options.mix->Growth(
              options.policy->cards, *before, sum, node.free.share[c] - free.share[c],
              limit == INT64_MAX ? limit : limit - waste.share / 1'000 * kLossOfWaste);
        }
        candidate.cost = loss ? CostOf(options, squares, *loss, waste, {&place, 1}) : INT64_MAX;
        if (tries < tried.size()) tried[tries++] = {c, m, candidate.cost};
      }
      if (candidate.cost == INT64_MAX || (options.by_use && candidate.cost > options.limit)) {
        end->dear = !best;
        continue;
      }
      if (options.by_use) candidate.excess = ExcessOf(node, {&place, 1}, options.expected_use);
      if (best && !candidate.Better(*best)) continue;
      if (best) candidate.places = std::move(best->places);
      candidate.places.assign(1, place);
      best = std::move(candidate);
      end->dear = false;
    }
  }
  return best;
}

// Hashes that were met. Full, it takes everything for new.
class Seen {
 public:
  // False: it was there.
  bool Insert(uint64_t hash) {
    if (slots_.empty()) slots_.resize(kSize);
    hash += hash == 0;
    for (size_t i = 0; i < 8; ++i) {
      uint64_t& slot = slots_[(hash + i) % kSize];
      if (slot == hash) return false;
      if (slot != 0) continue;
      slot = hash;
      return true;
    }
    return true;
  }

 private:
  static constexpr size_t kSize = 1 << 15;
  std::vector<uint64_t> slots_;
};

class Search {
 public:
  Search(const NodeState& node, const Wants& wanted, const SearchOptions& options)
      : node_(node),
        wanted_(wanted),
        wants_(wanted.wants),
        options_(options),
        budget_(options.budget),
        left_(wanted.share) {
    for (size_t c = 0; c < node.cards.size(); ++c) {
      use_[c] = node.cards[c].use;
      full_[c] = node.full[c];
      on_[c] = 0;
      room_ += RoomOn(c);
    }
  }

  std::optional<Candidate> Run(SearchEnd* end) {
    if (left_ > room_) return std::nullopt;
    if (ByLoss(options_.policy->cards)) {
      free_ = FreeOf(node_, options_.cpu_milli, options_.memory_mib);
      before_ = LossesOf(node_, *options_.mix, options_.policy->cards);
    }
    places_.resize(wants_.size());
    Descend(0);
    *end = {budget_ == 0, dear_ && !best_, steps_};
    return std::move(best_);
  }

 private:
  int64_t FullnessOf(size_t c, const CardUse& use) const {
    const CardState& card = node_.cards[c];
    return Fullness(*options_.policy, use.share, policy::kWhole, use.memory_mib,
                    card.card->memory_mib);
  }

  bool Allowed(size_t c) const { return options_.allowed >> c & 1; }

  // What is free on the GPU and not too little for the least that is wanted.
  policy::Share RoomOn(size_t c) const {
    const policy::Share free = policy::kWhole - use_[c].share;
    return Allowed(c) && free >= wanted_.least ? free : policy::Share(0);
  }

  // Whether it makes no difference to what comes which of the two is taken.
  bool Alike(size_t a, size_t b, uint32_t containers) const {
    return node_.kind[a] == node_.kind[b] && use_[a] == use_[b] &&
           (on_[a] & containers) == (on_[b] & containers) &&
           (touched_ >> a & 1) == (touched_ >> b & 1) &&
           (!options_.by_use || node_.cards[a].beyond == node_.cards[b].beyond);
  }

  void Descend(size_t index) {
    if (index == wants_.size()) {
      Finish();
      return;
    }
    if (budget_ == 0) return;
    --budget_;
    const Want& want = wants_[index];
    // Those of one group are alike, so they go on GPUs in ascending order.
    const bool follows = index > 0 && wants_[index - 1].container == want.container &&
                         wants_[index - 1].group == want.group;
    const size_t first = follows ? places_[index - 1].card + 1u : 0;
    const uint32_t container = 1u << want.container;
    // Most searches are over before it pays to remember where they were.
    if (++steps_ > kForgetful && !seen_.Insert(StateHash(index, first))) return;
    if (!Promising()) return;

    struct Option {
      int64_t order;
      uint8_t card;
      uint8_t mode;
    };
    std::array<Option, kCards * kModes> options;
    size_t count = 0;
    for (size_t c = first; c < node_.cards.size(); ++c) {
      if (!Allowed(c) || (on_[c] & container) != 0) continue;
      // Without a look at the GPU itself, which is far away in memory.
      if (want.share > policy::kWhole - use_[c].share) continue;
      bool twin = false;
      for (size_t b = first; b < c && !twin; ++b) {
        twin = Allowed(b) && (on_[b] & container) == 0 && Alike(b, c, wanted_.later[index]);
      }
      if (twin) continue;
      const CardState& card = node_.cards[c];
      const VgpuWant wanted = want.On(*card.card);
      for (size_t m = 0; m < options_.modes.size(); ++m) {
        if (!(card.serves >> m & 1) || !(options_.mode_mask >> m & 1)) continue;
        if (use_[c].vgpus > 0 && use_[c].mode != m) continue;
        const auto fit = options_.modes[m]->TryFit(*card.card, use_[c], wanted);
        if (!fit) continue;
        // The likely best first: then there is soon something to compare with.
        int64_t order = (fit->share - wanted.share).millionths();
        order += (options_.policy->cards == Rule::kSpread ? full_[c] : -full_[c]) * 1'000'000;
        if (!(touched_ >> c & 1) && touched_ != 0) {
          const Spread add = NewGround(c, touched_);
          order += (add.islands * 4 + add.numas * 2 + add.switches) * int64_t{10'000'000'000};
        }
        options[count++] = {order, static_cast<uint8_t>(c), static_cast<uint8_t>(m)};
      }
    }
    // Few; std::stable_sort would allocate.
    for (size_t i = 1; i < count; ++i) {
      for (size_t j = i; j > 0 && options[j].order < options[j - 1].order; --j) {
        std::swap(options[j], options[j - 1]);
      }
    }
    for (size_t i = 0; i < count && budget_ > 0; ++i) Try(index, options[i].card, options[i].mode);
  }

  void Try(size_t index, uint8_t c, uint8_t mode) {
    const Want& want = wants_[index];
    const Card& card = *node_.cards[c].card;
    const VgpuWant wanted = want.On(card);
    const Place place{c, mode, *options_.modes[mode]->TryFit(card, use_[c], wanted)};
    const CardUse use = use_[c];
    const int64_t full = full_[c];
    const uint16_t touched = touched_;
    const uint32_t on = on_[c];
    const policy::ShareSum room = room_;
    const Waste waste = waste_;
    places_[index] = place;
    room_ -= RoomOn(c);
    use_[c] = {use.share + place.fit.share, use.memory_mib + place.fit.memory_mib,
               static_cast<uint16_t>(use.vgpus + 1), place.mode, place.fit.layout};
    room_ += RoomOn(c);
    full_[c] = FullnessOf(c, use_[c]);
    touched_ |= static_cast<uint16_t>(1u << c);
    on_[c] |= 1u << want.container;
    waste_ += WasteOf(*options_.policy, card, wanted, place.fit);
    left_ -= want.share;
    if (left_ <= room_) Descend(index + 1);
    left_ += want.share;
    waste_ = waste;
    on_[c] = on;
    touched_ = touched;
    full_[c] = full;
    use_[c] = use;
    room_ = room;
  }

  // What the GPU adds to how far apart `others` are (a bit for each): 0 or 1 of each.
  Spread NewGround(size_t c, uint32_t others) const {
    Spread add{1, 1, 1};
    const Card& card = *node_.cards[c].card;
    for (size_t b = 0; b < node_.cards.size(); ++b) {
      if (!(others >> b & 1)) continue;
      const Card& other = *node_.cards[b].card;
      const bool linked = card.island >= 0 && other.island == card.island;
      const bool switched =
          card.island < 0 && other.island < 0 && card.pcie >= 0 && other.pcie == card.pcie;
      if (linked) add.islands = 0;
      if (other.numa == card.numa) add.numas = 0;
      if (linked || switched) add.switches = 0;
    }
    return add;
  }

  Spread SpreadNow() const {
    Spread spread;
    for (size_t c = 0; c < node_.cards.size(); ++c) {
      if (!(touched_ >> c & 1)) continue;
      const Spread add = NewGround(c, touched_ & ((1u << c) - 1));
      spread.islands += add.islands;
      spread.numas += add.numas;
      spread.switches += add.switches;
    }
    return spread;
  }

  // What is not done yet can only add to where the GPUs are spread over.
  bool Promising() {
    if (touched_ == 0 || (!best_ && options_.spread == kAnySpread)) return true;
    const Spread spread = SpreadNow();
    if (spread > options_.spread) {
      dear_ = true;
      return false;
    }
    return !best_ || spread <= best_->spread;
  }

  // A sum over the GPUs, so that alike GPUs may change places.
  uint64_t StateHash(size_t index, size_t first) const {
    uint64_t hash = Mixed(index + 1);
    for (size_t c = 0; c < node_.cards.size(); ++c) {
      uint64_t h = Mixed(node_.kind[c] + 1);
      h = Mixed(h ^ (uint64_t{use_[c].share.millionths()} << 32 | use_[c].memory_mib));
      h = Mixed(h ^ use_[c].layout);
      if (options_.by_use) h = Mixed(h ^ static_cast<uint64_t>(node_.cards[c].beyond));
      h = Mixed(h ^ (uint64_t{use_[c].vgpus} << 16 | use_[c].mode));
      h = Mixed(h ^ (uint64_t{on_[c] & wanted_.later[index]} << 2 | (touched_ >> c & 1u) << 1 |
                     (c < first ? 1u : 0u)));
      hash += h;
    }
    return hash;
  }

  int64_t SquareGain() const {
    int64_t gain = 0;
    for (size_t c = 0; c < node_.cards.size(); ++c) {
      if (!(touched_ >> c & 1)) continue;
      const int64_t was = node_.full[c];
      gain += full_[c] * full_[c] - was * was;
    }
    return gain;
  }

  // What is lost by Rule::kFragmentation, kRemainder or kScarcity grows by so much; perhaps nothing
  // where that is more than `limit`.
  std::optional<int64_t> Loss(int64_t limit) const {
    FreeNode free = free_;
    int64_t taken = 0;
    for (size_t c = 0; c < node_.cards.size(); ++c) {
      if (!(touched_ >> c & 1)) continue;
      SetFree(free, c, *node_.cards[c].card, use_[c]);
      taken += free_.share[c] - free.share[c];
    }
    return options_.mix->Growth(options_.policy->cards, before_, Mix::Sum(free), taken, limit);
  }

  void Finish() {
    if (!finished_) budget_ = std::min(budget_, kPolish);
    finished_ = true;
    if (!Promising()) return;
    Candidate candidate;
    candidate.spread = SpreadNow();
    const int64_t squares = SquareGain();
    candidate.fit = -squares;
    int64_t loss = 0;
    if (ByLoss(options_.policy->cards)) {
      int64_t limit = INT64_MAX;
      if (candidate.spread == options_.spread) limit = options_.limit;
      if (best_ && !options_.by_use && candidate.spread == best_->spread) {
        limit = std::min(limit, best_->cost);
      }
      if (limit != INT64_MAX) limit -= waste_.share / 1'000 * kLossOfWaste;
      const auto grown = Loss(limit);
      if (!grown) {
        dear_ = true;
        return;
      }
      loss = *grown;
    }
    candidate.cost = CostOf(options_, squares, loss, waste_, places_);
    if (options_.by_use) {
      dear_ |= candidate.cost > options_.limit;
      if (candidate.cost > options_.limit) return;
      candidate.excess = ExcessOf(node_, places_, options_.expected_use);
    }
    if (best_ && !candidate.Better(*best_)) return;
    // Its memory is used again.
    candidate.places = best_ ? std::move(best_->places) : std::vector<Place>();
    candidate.places.resize(wants_.size());
    for (size_t i = 0; i < wants_.size(); ++i) candidate.places[wanted_.order[i]] = places_[i];
    best_ = std::move(candidate);
  }

  const NodeState& node_;
  const Wants& wanted_;
  const std::vector<Want>& wants_;
  const SearchOptions& options_;
  uint32_t budget_;
  uint32_t steps_ = 0;
  // Of the node's GPUs, the rest is not set.
  std::array<CardUse, kCards> use_;
  std::array<int64_t, kCards> full_;
  std::array<uint32_t, kCards> on_;  // a bit for each of the pod's containers
  uint16_t touched_ = 0;             // GPUs that the pod is on, so far
  Waste waste_;
  policy::ShareSum left_;  // that is still to be placed
  policy::ShareSum room_;  // and what is free for it
  FreeNode free_;
  Mix::Losses before_{};
  std::vector<Place> places_;
  std::optional<Candidate> best_;
  bool finished_ = false;  // a place was found, though it may not be of interest
  bool dear_ = false;
  Seen seen_;
};

}  // namespace

uint64_t Mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

bool Candidate::Better(const Candidate& other) const {
  if (spread != other.spread) return spread < other.spread;
  if (excess != other.excess) return excess < other.excess;
  if (cost != other.cost) return cost < other.cost;
  return fit < other.fit;
}

void SetFree(FreeNode& free, size_t c, const Card& card, const CardUse& use) {
  free.share[c] = static_cast<int16_t>((policy::kWhole - use.share) / policy::kShareMin);
  const uint32_t left = FreeMib(card, use);
  free.memory[c] = FreeNode::CardMemory(left);
  free.part[c] = static_cast<int16_t>(uint64_t{left} * 1'000 / card.memory_mib);
}

Wants::Wants(const std::vector<Want>& all) {
  order.resize(all.size());
  for (size_t i = 0; i < all.size(); ++i) order[i] = static_cast<uint16_t>(i);
  const auto key = [&](uint16_t i) {
    const Want& w = all[i];
    return std::tuple(~w.share.millionths(), ~w.memory_mib, ~w.memory_part.millionths(),
                      w.container, w.group);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](uint16_t a, uint16_t b) { return key(a) < key(b); });
  wants.reserve(all.size());
  for (const uint16_t i : order) wants.push_back(all[i]);
  later.resize(all.size());
  uint32_t containers = 0;
  for (size_t i = all.size(); i-- > 0;) {
    containers |= 1u << wants[i].container;
    later[i] = containers;
    share += wants[i].share;
  }
  if (!wants.empty()) least = wants.back().share;
}

void NumberKinds(NodeState& node) {
  for (size_t c = 0; c < node.cards.size(); ++c) {
    node.kind[c] = static_cast<uint8_t>(c);
    const CardState& card = node.cards[c];
    for (size_t b = 0; b < c; ++b) {
      const CardState& other = node.cards[b];
      if (node.kind[b] == b && other.model == card.model &&
          other.card->memory_mib == card.card->memory_mib &&
          other.card->taken_mib == card.card->taken_mib &&
          other.card->reserve_mib == card.card->reserve_mib &&
          other.card->island == card.card->island && other.card->numa == card.card->numa &&
          other.card->pcie == card.card->pcie && other.serves == card.serves &&
          other.card->instances == card.card->instances) {
        node.kind[c] = static_cast<uint8_t>(b);
        break;
      }
    }
  }
}

Supply SupplyOf(const NodeState& node) {
  Supply supply;
  // Up to four binary digits: nodes that hardly differ are one kind.
  const auto coarse = [](int16_t n) {
    int low = 1;
    while (n / low >= 16) low *= 2;
    return static_cast<int16_t>(std::min((n + low - 1) / low * low, int{FreeNode::kEnough}));
  };
  if (node.info.cpu_milli > 0) supply.cpu = coarse(FreeNode::Cpu(node.info.cpu_milli));
  if (node.info.memory_mib > 0) supply.host = coarse(FreeNode::Host(node.info.memory_mib));
  for (const CardState& card : node.cards) {
    if (!card.usable) continue;
    if (supply.cards++ == 0) {
      supply.model = card.model;
      supply.name = card.card->model;
      supply.card_mib = card.card->memory_mib;
    }
    supply.card_mib = std::min(supply.card_mib, card.card->memory_mib);
  }
  return supply;
}

FreeNode FreeOf(const NodeState& node, uint32_t cpu_milli, uint64_t memory_mib) {
  FreeNode free = node.free;
  free.cpu = FreeCpu(node, cpu_milli);
  free.host = FreeHost(node, memory_mib);
  return free;
}

const Mix::Losses& LossesOf(const NodeState& node, const Mix& mix, Rule rule) {
  if (node.loss_version != mix.version() || node.loss_rule != rule) {
    node.losses = mix.LossesOf(rule, Mix::Sum(FreeOf(node, 0, 0)));
    node.loss_version = mix.version();
    node.loss_rule = rule;
  }
  return node.losses;
}

int64_t ExcessOf(const NodeState& node, std::span<const Place> places,
                 const std::optional<policy::Share>& use) {
  std::array<int64_t, kCards> with{};  // of the GPUs of the pod: expected use with it
  for (const Place& place : places) {
    int64_t& card = with[place.card];
    if (card == 0) card = ExpectedUse(node.cards[place.card]);
    card += use.value_or(place.fit.share).millionths();
  }
  int64_t excess = 0;
  for (const int64_t card : with) {
    excess += std::max<int64_t>(0, card - int64_t{policy::kWhole.millionths()});
  }
  return (excess + kUseStep / 2) / kUseStep;
}

int64_t Fullness(const PlacementPolicy& policy, policy::ShareSum share_used,
                 policy::ShareSum share_all, uint64_t memory_used, uint64_t memory_all) {
  const uint64_t share =
      share_all > policy::Share(0) ? share_used * policy.share_weight / share_all : 0;
  const uint64_t memory = memory_all > 0 ? memory_used * policy.memory_weight / memory_all : 0;
  return static_cast<int64_t>(share + memory);
}

std::optional<Candidate> SearchNode(const NodeState& node, const Wants& wanted,
                                    const SearchOptions& options, SearchEnd* end) {
  if (wanted.wants.size() == 1) return SearchOne(node, wanted.wants[0], options, end);
  return Search(node, wanted, options).Run(end);
}

}  // namespace baton::devmgr
