// What a user asks for a pod: one struct, and one table of its fields. A field is written in a
// [[pod]] of batond's file, in JSON to the control socket, as a flag of `baton`, in pods.json and,
// where Kubernetes has it, as an annotation and in a SharePod; all of them read and write it by its
// row here. docs/pod-fields.md is generated from the table.
//
// Pure; thread safe.
#ifndef BATON_SPEC_POD_REQUEST_H_
#define BATON_SPEC_POD_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "policy/share.h"

namespace baton::spec {

using Json = nlohmann::json;

inline constexpr uint32_t kGpusMax = 16;     // of a pod
inline constexpr uint32_t kGangMax = 1'024;  // pods of a gang
inline constexpr size_t kListMax = 64;       // texts in a list, such as GPUs to choose from
inline constexpr size_t kTicketMax = 64;     // bytes

// What a pod asks of GPUs beside room; see devmgr::PodRequest.
struct CardWishes {
  std::string mode;  // empty: by turns, else an instance of a GPU on which MIG is on
  std::vector<std::string> models;
  std::vector<std::string> not_models;
  std::vector<std::string> gpus;  // uuids or indexes; only these. Empty: any
  std::string affinity;
  std::string anti_affinity;
  std::string exclusion;
  std::vector<std::string> not_gpus = {};  // uuids or indexes; none of these
  // "binpack" or "spread", of the nodes and of a node's GPUs; empty: as the operator says.
  std::string node_policy = {};
  std::string gpu_policy = {};

  friend bool operator==(const CardWishes&, const CardWishes&) = default;
};

struct PodRequest {
  std::string name;
  std::string flavor;  // a named size (spec/flavors.h); empty once it has filled in what it says
  policy::ShareSpec share{.request = {}, .limit = {}};  // 0: not said; Complete() fills it in
  uint64_t memory_cap = 0;                              // bytes on each GPU; 0: memory_part says
  policy::Share memory_part;                            // of each GPU's memory; 0: no cap
  bool swap = false;            // its memory may be moved to the host while others need room. Fixed
  uint64_t memory_request = 0;  // with swap: bytes that are always there for it
  std::string team;             // TeamPath(), such as research/vision
  std::string user;             // whose work it is, for the books
  std::string name_space;       // of Kubernetes, for the books
  CardWishes wishes;
  uint32_t count = 0;        // of those GPUs; 0: as many as are named, or one
  bool independent = false;  // each GPU's token by itself, not all or none. Fixed
  std::string gang;          // pods with one word have their tokens together; empty: none. Fixed
  uint32_t gang_size = 0;    // pods that are waited for; 0: for none
  int64_t uid = -1;          // whose processes may attach; -1: anybody's who has the ticket
  // Uid of a Kubernetes pod: only processes that the kubelet put into it may attach. Empty: any.
  std::string cgroup;
  std::string ticket;  // empty: drawn at random
  // Of mode exclusive: it holds its GPUs from its creation to its deletion, not by the token. Fixed
  bool without_hook = false;
  int64_t asked_at = 0;  // seconds since 1970; 0: when it was made

  // Whether it has its tokens on so many GPUs together, or with those of other pods.
  bool Together(size_t gpus) const { return !independent && (gpus > 1 || !gang.empty()); }

  friend bool operator==(const PodRequest&, const PodRequest&) = default;
};

// A row of the table.
struct PodField {
  // What has a grammar of its own. `read` is given the value; its error is a sentence without the
  // field's name. `write` gives what `read` takes; null: not said.
  struct Special {
    Result<void> (*read)(const Json& value, PodRequest& request);
    Json (*write)(const PodRequest& request);
  };
  using Place = std::variant<std::string PodRequest::*, std::string CardWishes::*,
                             std::vector<std::string> CardWishes::*, Special>;

  std::string_view key;         // in TOML and JSON
  std::string_view flag;        // of `baton`; empty: it has none
  std::string_view value;       // what is written: "PERCENT"; "": nothing, the flag alone
  bool changes;                 // in place: `baton set`
  std::string_view annotation;  // baton.dev/...; empty: Kubernetes has it not, or not by itself
  std::string_view share_pod;   // where it is in a SharePod's spec.gpu: "model"; empty: nowhere
  std::string_view about;       // a sentence for users, without a full stop
  size_t bytes_max;             // of a text, or of each text of a list
  Place place;
  std::string_view share_pod_values =
      {};                        // all that a SharePod takes: "low, high"; empty: any text
  std::string_view detail = {};  // further sentences, for SharePods and the reference
  std::string_view values = {};  // all that there is: "a, b"; empty: any text

  bool is_list() const {
    return std::holds_alternative<std::vector<std::string> CardWishes::*>(place);
  }
  // Yes or no.
  bool is_flag() const { return value.empty() && !flag.empty(); }
  // Decides where the pod goes, and how it has its GPUs: fixed once it is there.
  bool is_wish() const {
    return is_list() || std::holds_alternative<std::string CardWishes::*>(place);
  }
};

// In the order in which users read them.
std::span<const PodField> PodFields();
// Null: there is none.
const PodField* FindPodField(std::string_view key);

// kInvalid names the field: "limit: '130' is not a share; ...".
Result<void> ReadField(const PodField& field, const Json& value, PodRequest& request);
// What ReadField() takes: percentages as numbers, memory in bytes or as "25%". Null: not said.
Json WriteField(const PodField& field, const PodRequest& request);

// All fields of an object; null counts as not said. kInvalid for a key that is no field. `skip`:
// a key of the caller's own.
Result<void> ReadFields(const Json& object, PodRequest& request, std::string_view skip = {});
// Every field that is said.
Json WriteFields(const PodRequest& request);

// A request alone means limit 100 % (elastic), a limit alone request = limit (strict). A pod of
// idle priority has no request. kInvalid: neither is said, or the limit is below the request, or a
// gang without a name has a size.
Result<void> Complete(PodRequest& request);
// kInvalid: `swap` does not go with another field, or a memory request is said without it. Of a
// pod that is created or changed.
Result<void> CheckSwap(const PodRequest& request);
// kInvalid: a pod of idle priority or with a latency cannot be in such a mode ("": not known yet),
// or have its tokens together.
Result<void> CheckShare(const policy::ShareSpec& share, std::string_view mode, bool gang);
// `was`, complete, with the fields of `change`; complete again. Where only the request changes, a
// strict pod stays strict. kInvalid: a field is not one, or cannot change in place.
Result<PodRequest> Changed(const PodRequest& was, const Json& change);

// Share from a request and a limit as users give them, as Complete() does.
Result<policy::ShareSpec> ShareFrom(policy::Share request, policy::Share limit,
                                    policy::Priority priority);
// "normal" (or "low", its old name), "high" or "idle".
Result<policy::Priority> ParsePriority(std::string_view text);
// In JSON and in files, where normal keeps its old name.
const char* PriorityName(policy::Priority priority);
// For people.
const char* PriorityWord(policy::Priority priority);

}  // namespace baton::spec

#endif  // BATON_SPEC_POD_REQUEST_H_
