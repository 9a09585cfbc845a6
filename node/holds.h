// How long clients hold tokens, measured where their frames come in: from the passing on of a Token
// with a new epoch to the arrival of the State that says it has drained. And when a Token begins
// that was passed on ahead: its word tells (wire/word.h).
//
// Of the tenants' endpoint. Not thread safe.
#ifndef BATON_NODE_HOLDS_H_
#define BATON_NODE_HOLDS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "node/word_page.h"
#include "scheduler/handover.h"
#include "scheduler/hold_meter.h"
#include "wire/messages.h"

namespace baton::node {

class Holds {
 public:
  using Next = scheduler::Handover::Next;
  // What all clients of a GPU have in common.
  struct OfGpu {
    scheduler::PodMeter meter;
    scheduler::Handover handover;
  };
  // A client on one GPU, over all its connections.
  struct Lane {
    bool attached = false;
    uint8_t index = 0;  // the client's for this GPU, while it is attached
    std::string uuid;
    scheduler::HoldMeter meter;
    OfGpu* of_gpu = nullptr;  // once it was sent a Token
    wire::State last;         // that it said
  };
  // A client on a GPU, and its words; null: it has none, or is not known.
  struct Party {
    uint64_t client = 0;
    Lane* lane = nullptr;
    const WordPage* words = nullptr;

    const wire::Word* word() const {
      return lane != nullptr && words != nullptr ? &words->word(lane->index) : nullptr;
    }
  };
  using Find = std::function<Party(uint64_t client, const std::string& uuid)>;

  // `token` is passed on to the client, `at`.
  void Sent(const Party& to, Instant at, const wire::Token& token);
  // A Token that was sent ahead, as it may be passed on: its `after_client` is 0 where the token
  // that it waits for has drained by now. Nothing where it is kept from the client: the hold before
  // it is not measured here, so that its beginning would not be known; or one of the two has no
  // word, and the client is told when it begins.
  std::optional<wire::Token> Ready(const Party& to, const Party& before, const wire::Token& token);
  // It is passed on ahead.
  void SentAhead(const Party& to, Instant at, const wire::Token& token);
  // The client's State came in at `said`. What hold it ends, and whose Tokens begin then.
  scheduler::Measured Said(const Party& who, Instant said, const wire::State& state,
                           const Find& find, std::vector<Next>& begin);
  // What the client has in its words and has not said, where somebody waits for that.
  static std::optional<wire::State> LastWords(const Party& who);
  // The client is gone. How long it held its last token, where it had said that this has drained.
  struct Ended {
    uint64_t epoch = 0;
    Duration held{0};
  };
  static Ended Gone(const Party& who);

 private:
  OfGpu& Of(Lane& lane);

  std::map<std::string, OfGpu> gpus_;  // those that a Token was sent for
};

}  // namespace baton::node

#endif  // BATON_NODE_HOLDS_H_
