#include "devmgr/search.h"

#include <algorithm>
#include <array>
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
      : node_(node), wants_(wants), options_(options), budget_(options.budget) {
    for (size_t c = 0; c < node.cards.size(); ++c) {
      use_[c] = node.cards[c].use;
      full_[c] = FullnessOf(c, use_[c]);
    }
    NumberKinds();
    places_.resize(wants.size());
    if (options_.policy->cards == Rule::kFragmentation) {
      free_ = FreeOf(node, options.cpu_milli, options.memory_mib);
      before_ = FragmentationOf(node, *options.mix);
    }
  }

  std::optional<Candidate> Run(bool* exhausted) {
    for (const Want& want : wants_) left_ += want.share;
    for (size_t c = 0; c < node_.cards.size(); ++c) {
      if (Allowed(c)) room_ += policy::kWhole - use_[c].share;
    }
    if (left_ > room_) return std::nullopt;
    Descend(0, -1);
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

  bool Alike(size_t a, size_t b) const {
    return kind_[a] == kind_[b] && use_[a] == use_[b] && taken_by_[a] == taken_by_[b] &&
           (touched_ >> a & 1) == (touched_ >> b & 1);
  }

  void Descend(size_t index, int last) {
    if (index == wants_.size()) {
      Finish();
      return;
    }
    if (budget_ == 0) return;
    --budget_;
    const Want& want = wants_[index];
    const bool follows = index > 0 && wants_[index - 1].container == want.container &&
                         wants_[index - 1].group == want.group;
    if (index > 0 && wants_[index - 1].container != want.container) {
      // Of the new container no card is taken yet; what others took matters no more.
      const auto saved = taken_by_;
      taken_by_.fill(false);
      Choose(index, want, -1);
      taken_by_ = saved;
      return;
    }
    Choose(index, want, follows ? last : -1);
  }

  void Choose(size_t index, const Want& want, int last) {
    if (wants_.size() > 2 && !seen_.insert(StateHash(index, last)).second) return;
    if (best_ && !Promising(index)) return;
    struct Option {
      Place place;
      int64_t order;
    };
    std::array<Option, kCards * kModes> options;
    size_t count = 0;
    const size_t cards = node_.cards.size();
    for (size_t c = static_cast<size_t>(last + 1); c < cards; ++c) {
      if (!Allowed(c) || taken_by_[c]) continue;
      bool twin = false;
      for (size_t b = static_cast<size_t>(last + 1); b < c && !twin; ++b) {
        twin = Allowed(b) && !taken_by_[b] && Alike(b, c);
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
        const int64_t full = full_[c];
        const int64_t waste = fit->share - wanted.share;
        int64_t order = waste;
        order += options_.policy->cards == Rule::kSpread ? full * 1'000 : -full * 1'000;
        if (!(touched_ >> c & 1) && touched_ != 0) order += NewGround(c) * 1'000'000'000;
        options[count++] = {{static_cast<uint8_t>(c), static_cast<uint8_t>(m), *fit}, order};
      }
    }
    // Few, and nearly sorted.
    std::stable_sort(options.begin(), options.begin() + static_cast<std::ptrdiff_t>(count),
                     [](const Option& a, const Option& b) { return a.order < b.order; });
    for (size_t i = 0; i < count; ++i) {
      const Place& place = options[i].place;
      const size_t c = place.card;
      const CardUse use = use_[c];
      const int64_t full = full_[c];
      const uint16_t touched = touched_;
      const bool taken = taken_by_[c];
      const VgpuWant wanted = want.On(*node_.cards[c].card);
      places_[index] = place;
      use_[c] = {use.share + place.fit.share, use.memory_mib + place.fit.memory_mib,
                 static_cast<uint16_t>(use.vgpus + 1), place.mode, place.fit.layout};
      full_[c] = FullnessOf(c, use_[c]);
      touched_ |= static_cast<uint16_t>(1u << c);
      taken_by_[c] = true;
      const int64_t waste = place.fit.share - wanted.share;
      waste_ += waste;
      left_ -= want.share;
      room_ -= place.fit.share;
      if (left_ <= room_) Descend(index + 1, static_cast<int>(c));
      room_ += place.fit.share;
      left_ += want.share;
      waste_ -= waste;
      taken_by_[c] = taken;
      touched_ = touched;
      full_[c] = full;
      use_[c] = use;
      if (budget_ == 0) return;
    }
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
  bool Promising(size_t index) const {
    if (index == 0) return true;
    const auto [islands, numas] = Spread();
    if (islands != best_->islands) return islands < best_->islands;
    return numas <= best_->numas;
  }

  uint64_t StateHash(size_t index, int last) const {
    // A sum over the cards, so that alike cards may change places. The position matters only to
    // those of the same group.
    uint64_t hash = Mixed(index + 1);
    for (size_t c = 0; c < node_.cards.size(); ++c) {
      uint64_t h = Mixed(kind_[c] + 1);
      h = Mixed(h ^ (uint64_t{use_[c].share} << 32 | use_[c].memory_mib));
      h = Mixed(h ^ use_[c].layout);
      h = Mixed(h ^ (uint64_t{use_[c].vgpus} << 16 | use_[c].mode));
      h = Mixed(h ^ ((taken_by_[c] ? 1u : 0u) | (touched_ >> c & 1u) << 1 |
                     (static_cast<int>(c) <= last ? 4u : 0u)));
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
      case Rule::kFragmentation: {
        FreeNode free = free_;
        for (size_t c = 0; c < node_.cards.size(); ++c) {
          if (touched_ >> c & 1) SetFree(free, c, *node_.cards[c].card, use_[c]);
        }
        candidate.cost = options_.mix->Fragmentation(free) - before_ + waste * Mix::kScale;
        break;
      }
    }
    if (best_ && !candidate.Better(*best_)) return;
    candidate.places = places_;
    best_ = std::move(candidate);
  }

  const NodeState& node_;
  const std::span<const Want> wants_;
  const SearchOptions& options_;
  uint32_t budget_;
  std::array<CardUse, kCards> use_{};
  std::array<int64_t, kCards> full_{};
  std::array<uint8_t, kCards> kind_{};
  std::array<bool, kCards> taken_by_{};  // by the container in question
  uint16_t touched_ = 0;                 // cards that the pod is on, so far
  int64_t waste_ = 0;
  uint64_t left_ = 0;  // share that is still to be placed
  uint64_t room_ = 0;  // and what is free for it
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

int64_t FragmentationOf(const NodeState& node, const Mix& mix) {
  if (node.fragmentation_version != mix.version()) {
    node.fragmentation = mix.Fragmentation(FreeOf(node, 0, 0));
    node.fragmentation_version = mix.version();
  }
  return node.fragmentation;
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
