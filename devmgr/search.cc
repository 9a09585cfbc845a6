#include "devmgr/search.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <unordered_set>

namespace baton::devmgr {
namespace {

constexpr size_t kCards = VgpuRequest::kCardsMax;
constexpr size_t kModes = 16;  // bits of SearchOptions::mode_mask
// u^2 grows by at most 2 000 for each thousandth that is used: what is taken beyond what was wanted
// costs more than any fullness can make good.
constexpr int64_t kWaste = 2'000;

class Search {
 public:
  Search(const NodeState& node, std::span<const Want> wants, const SearchOptions& options)
      : node_(node), options_(options), budget_(options.budget) {
    for (size_t c = 0; c < node.cards.size(); ++c) {
      use_[c] = node.cards[c].use;
      full_[c] = FullnessOf(c, use_[c]);
    }
    NumberKinds();
    Order(wants);
    const Rule rule = options_.policy->cards;
    if (rule == Rule::kFragmentation || rule == Rule::kRemainder) {
      free_ = FreeOf(node, options.cpu_milli, options.memory_mib);
      before_ = LossOf(node, *options.mix, rule);
    }
  }

  std::optional<Candidate> Run(bool* exhausted) {
    for (const Want& want : wants_) left_ += want.share;
    for (size_t c = 0; c < node_.cards.size(); ++c) room_ += RoomOn(c);
    if (left_ > room_) return std::nullopt;
    Descend(0);
    *exhausted |= budget_ == 0;
    return std::move(best_);
  }

 private:
  int64_t FullnessOf(size_t c, const CardUse& use) const {
    const CardState& card = node_.cards[c];
    return Fullness(*options_.policy, use.share, policy::kWhole, use.memory_mib,
                    card.card->memory_mib);
  }

  // Cards of one kind differ at most in what is used of them.
  void NumberKinds() {
    for (size_t c = 0; c < node_.cards.size(); ++c) {
      kind_[c] = static_cast<uint8_t>(c);
      if (!Allowed(c)) continue;
      const CardState& card = node_.cards[c];
      for (size_t b = 0; b < c; ++b) {
        const CardState& other = node_.cards[b];
        if (kind_[b] == b && Allowed(b) && other.model == card.model &&
            other.card->memory_mib == card.card->memory_mib &&
            other.card->island == card.card->island && other.card->numa == card.card->numa &&
            other.serves == card.serves && other.card->instances == card.card->instances) {
          kind_[c] = static_cast<uint8_t>(b);
          break;
        }
      }
    }
  }

  bool Allowed(size_t c) const { return options_.allowed >> c & 1; }

  // The large ones first: they have the fewest places. Those of one group stay together.
  void Order(std::span<const Want> wants) {
    order_.resize(wants.size());
    for (size_t i = 0; i < wants.size(); ++i) order_[i] = static_cast<uint16_t>(i);
    const auto key = [&](uint16_t i) {
      const Want& w = wants[i];
      return std::tuple(~w.share, ~w.memory_mib, ~w.memory_part, w.container, w.group);
    };
    std::stable_sort(order_.begin(), order_.end(),
                     [&](uint16_t a, uint16_t b) { return key(a) < key(b); });
    wants_.reserve(wants.size());
    for (const uint16_t i : order_) wants_.push_back(wants[i]);
    later_.resize(wants.size());
    uint32_t later = 0;  // containers
    for (size_t i = wants_.size(); i-- > 0;) {
      later |= 1u << wants_[i].container;
      later_[i] = later;
    }
    least_ = wants_.empty() ? 0 : wants_.back().share;
    places_.resize(wants.size());
  }

  // What is free on the card and not too little for the least that is wanted.
  uint64_t RoomOn(size_t c) const {
    const uint64_t free = policy::kWhole - use_[c].share;
    return Allowed(c) && free >= least_ ? free : 0;
  }

  // Whether it makes no difference to what comes which of the two is taken.
  bool Alike(size_t a, size_t b, uint32_t containers) const {
    return kind_[a] == kind_[b] && use_[a] == use_[b] &&
           (on_[a] & containers) == (on_[b] & containers) &&
           (touched_ >> a & 1) == (touched_ >> b & 1);
  }

  void Descend(size_t index) {
    if (index == wants_.size()) {
      Finish();
      return;
    }
    if (budget_ == 0) return;
    --budget_;
    const Want& want = wants_[index];
    // Those of one group are alike, so they go on cards in ascending order.
    const bool follows = index > 0 && wants_[index - 1].container == want.container &&
                         wants_[index - 1].group == want.group;
    const size_t first = follows ? places_[index - 1].card + 1u : 0;
    const uint32_t container = 1u << want.container;
    if (wants_.size() > 2 && !seen_.insert(StateHash(index, first)).second) return;
    if (best_ && !Promising()) return;

    struct Option {
      Place place;
      int64_t order;
    };
    std::array<Option, kCards * kModes> options;
    size_t count = 0;
    for (size_t c = first; c < node_.cards.size(); ++c) {
      if (!Allowed(c) || (on_[c] & container) != 0) continue;
      bool twin = false;
      for (size_t b = first; b < c && !twin; ++b) {
        twin = Allowed(b) && (on_[b] & container) == 0 && Alike(b, c, later_[index]);
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
        int64_t order = fit->share - wanted.share;
        order += (options_.policy->cards == Rule::kSpread ? full_[c] : -full_[c]) * 1'000'000;
        if (!(touched_ >> c & 1) && touched_ != 0) order += NewGround(c) * 10'000'000'000;
        options[count++] = {{static_cast<uint8_t>(c), static_cast<uint8_t>(m), *fit}, order};
      }
    }
    std::stable_sort(options.begin(), options.begin() + static_cast<std::ptrdiff_t>(count),
                     [](const Option& a, const Option& b) { return a.order < b.order; });
    for (size_t i = 0; i < count && budget_ > 0; ++i) Try(index, options[i].place);
  }

  void Try(size_t index, const Place& place) {
    const Want& want = wants_[index];
    const size_t c = place.card;
    const CardUse use = use_[c];
    const int64_t full = full_[c];
    const uint16_t touched = touched_;
    const uint32_t on = on_[c];
    const uint64_t room = room_;
    const int64_t waste = place.fit.share - want.share;
    places_[index] = place;
    room_ -= RoomOn(c);
    use_[c] = {use.share + place.fit.share, use.memory_mib + place.fit.memory_mib,
               static_cast<uint16_t>(use.vgpus + 1), place.mode, place.fit.layout};
    room_ += RoomOn(c);
    full_[c] = FullnessOf(c, use_[c]);
    touched_ |= static_cast<uint16_t>(1u << c);
    on_[c] |= 1u << want.container;
    waste_ += waste;
    left_ -= want.share;
    if (left_ <= room_) Descend(index + 1);
    left_ += want.share;
    waste_ -= waste;
    on_[c] = on;
    touched_ = touched;
    full_[c] = full;
    use_[c] = use;
    room_ = room;
  }

  // 0 to 3: how much further apart the pod's cards are with this one.
  int64_t NewGround(size_t c) const {
    bool island = true;
    bool numa = true;
    const Card& card = *node_.cards[c].card;
    for (size_t b = 0; b < node_.cards.size(); ++b) {
      if (!(touched_ >> b & 1)) continue;
      if (card.island >= 0 && node_.cards[b].card->island == card.island) island = false;
      if (node_.cards[b].card->numa == card.numa) numa = false;
    }
    return (island ? 2 : 0) + (numa ? 1 : 0);
  }

  std::pair<uint32_t, uint32_t> Spread() const {
    uint32_t islands = 0;
    uint32_t numas = 0;
    for (size_t c = 0; c < node_.cards.size(); ++c) {
      if (!(touched_ >> c & 1)) continue;
      const Card& card = *node_.cards[c].card;
      bool island = true;
      bool numa = true;
      for (size_t b = 0; b < c; ++b) {
        if (!(touched_ >> b & 1)) continue;
        if (card.island >= 0 && node_.cards[b].card->island == card.island) island = false;
        if (node_.cards[b].card->numa == card.numa) numa = false;
      }
      islands += island;
      numas += numa;
    }
    return {islands, numas};
  }

  // What is not done yet can only add to where the cards are spread over.
  bool Promising() const {
    if (touched_ == 0) return true;
    const auto [islands, numas] = Spread();
    if (islands != best_->islands) return islands < best_->islands;
    return numas <= best_->numas;
  }

  // A sum over the cards, so that alike cards may change places.
  uint64_t StateHash(size_t index, size_t first) const {
    uint64_t hash = Mixed(index + 1);
    for (size_t c = 0; c < node_.cards.size(); ++c) {
      uint64_t h = Mixed(kind_[c] + 1);
      h = Mixed(h ^ (uint64_t{use_[c].share} << 32 | use_[c].memory_mib));
      h = Mixed(h ^ use_[c].layout);
      h = Mixed(h ^ (uint64_t{use_[c].vgpus} << 16 | use_[c].mode));
      h = Mixed(h ^ (uint64_t{on_[c] & later_[index]} << 2 | (touched_ >> c & 1u) << 1 |
                     (c < first ? 1u : 0u)));
      hash += h;
    }
    return hash;
  }

  int64_t SquareGain() const {
    int64_t gain = 0;
    for (size_t c = 0; c < node_.cards.size(); ++c) {
      if (!(touched_ >> c & 1)) continue;
      const int64_t was = FullnessOf(c, node_.cards[c].use);
      gain += full_[c] * full_[c] - was * was;
    }
    return gain;
  }

  void Finish() {
    Candidate candidate;
    std::tie(candidate.islands, candidate.numas) = Spread();
    if (wants_.empty()) candidate.islands = candidate.numas = 0;
    const int64_t squares = SquareGain();
    candidate.fit = -squares;
    const int64_t waste = waste_ / 1'000;
    switch (options_.policy->cards) {
      case Rule::kBinpack:
      case Rule::kFirstFit:
        candidate.cost = -squares + kWaste * waste;
        break;
      case Rule::kSpread:
        candidate.cost = squares + kWaste * waste;
        break;
      case Rule::kRandom: {
        uint64_t hash = options_.salt;
        for (const Place& place : places_) hash = Mixed(hash ^ (place.card + 1u));
        candidate.cost = static_cast<int64_t>(hash >> 1);
        break;
      }
      case Rule::kFragmentation:
      case Rule::kRemainder: {
        FreeNode free = free_;
        for (size_t c = 0; c < node_.cards.size(); ++c) {
          if (touched_ >> c & 1) SetFree(free, c, *node_.cards[c].card, use_[c]);
        }
        candidate.cost =
            LossOf(free, *options_.mix, options_.policy->cards) - before_ + waste * Mix::kScale;
        break;
      }
    }
    if (best_ && !candidate.Better(*best_)) return;
    candidate.places.resize(places_.size());
    for (size_t i = 0; i < places_.size(); ++i) candidate.places[order_[i]] = places_[i];
    best_ = std::move(candidate);
  }

  const NodeState& node_;
  const SearchOptions& options_;
  uint32_t budget_;
  std::array<CardUse, kCards> use_{};
  std::array<int64_t, kCards> full_{};
  std::array<uint8_t, kCards> kind_{};
  std::array<uint32_t, kCards> on_{};  // a bit for each of the pod's containers
  uint16_t touched_ = 0;               // cards that the pod is on, so far
  int64_t waste_ = 0;
  std::vector<Want> wants_;      // in the order of the search
  std::vector<uint16_t> order_;  // and which they were
  std::vector<uint32_t> later_;  // containers of this one and those after it
  policy::Share least_ = 0;      // of what is wanted
  uint64_t left_ = 0;            // share that is still to be placed
  uint64_t room_ = 0;            // and what is free for it
  FreeNode free_;
  int64_t before_ = 0;
  std::vector<Place> places_;
  std::optional<Candidate> best_;
  std::unordered_set<uint64_t> seen_;
};

}  // namespace

uint64_t Mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

bool Candidate::Better(const Candidate& other) const {
  if (islands != other.islands) return islands < other.islands;
  if (numas != other.numas) return numas < other.numas;
  if (cost != other.cost) return cost < other.cost;
  return fit < other.fit;
}

void SetFree(FreeNode& free, size_t c, const Card& card, const CardUse& use) {
  free.share[c] = static_cast<int16_t>((policy::kWhole - use.share) / 1'000);
  const uint32_t left = card.memory_mib - use.memory_mib;
  free.memory[c] = FreeNode::CardMemory(left);
  free.part[c] = static_cast<int16_t>(uint64_t{left} * 1'000 / card.memory_mib);
}

FreeNode FreeOf(const NodeState& node, uint32_t cpu_milli, uint64_t memory_mib) {
  FreeNode free;
  free.cards = node.cards.size();
  for (size_t c = 0; c < node.cards.size(); ++c) {
    // Nothing is free on a card that must not be used.
    if (node.cards[c].usable) SetFree(free, c, *node.cards[c].card, node.cards[c].use);
  }
  if (node.info.cpu_milli > 0) {
    const uint64_t used = node.cpu_used + cpu_milli;
    free.cpu = FreeNode::Cpu(node.info.cpu_milli > used ? node.info.cpu_milli - used : 0);
  }
  if (node.info.memory_mib > 0) {
    const uint64_t used = node.memory_used + memory_mib;
    free.host = FreeNode::Host(node.info.memory_mib > used ? node.info.memory_mib - used : 0);
  }
  return free;
}

int64_t LossOf(const FreeNode& free, const Mix& mix, Rule rule) {
  return rule == Rule::kFragmentation ? mix.Fragmentation(free) : mix.Remainder(free);
}

int64_t LossOf(const NodeState& node, const Mix& mix, Rule rule) {
  if (node.loss_version != mix.version() || node.loss_rule != rule) {
    node.loss = LossOf(FreeOf(node, 0, 0), mix, rule);
    node.loss_version = mix.version();
    node.loss_rule = rule;
  }
  return node.loss;
}

int64_t Fullness(const PlacementPolicy& policy, uint64_t share_used, uint64_t share_all,
                 uint64_t memory_used, uint64_t memory_all) {
  const uint64_t share = share_all > 0 ? share_used * policy.share_weight / share_all : 0;
  const uint64_t memory = memory_all > 0 ? memory_used * policy.memory_weight / memory_all : 0;
  return static_cast<int64_t>(share + memory);
}

std::optional<Candidate> SearchNode(const NodeState& node, std::span<const Want> wants,
                                    const SearchOptions& options, bool* exhausted) {
  return Search(node, wants, options).Run(exhausted);
}

}  // namespace baton::devmgr
