// The messages between hook, relay and backend. docs/protocol.md tells who says what when; this
// header is the one list of fields, and the codec is derived from it.
//
// Two properties make lost, repeated and reordered frames harmless:
//   * a client says its whole *state* (State), numbered by `seq`, with cumulative counters: a later
//     one replaces an earlier one and nothing needs to arrive exactly once;
//   * a grant is named by (epoch, rev): a higher pair replaces a lower one, a lower one is dropped.
//
// Header only, no allocation, no C++ runtime library: the hook uses it as it stands.
#ifndef BATON_WIRE_MESSAGES_H_
#define BATON_WIRE_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/time.h"

namespace baton::wire {

// This build speaks kVersion and understands kVersion ± 1. A newer peer may append fields; they
// are skipped. A field that an older peer does not send keeps its default.
inline constexpr uint8_t kVersion = 1;
// The longest frame of a tenant, and of a relay (which carries control requests), in bytes.
inline constexpr size_t kTenantFrameMax = 4096;
inline constexpr size_t kRelayFrameMax = 256 * 1024;
// ... and of a batond to another, about what many pods used.
inline constexpr size_t kBooksFrameMax = 8 << 20;
// Physical GPUs that one client may attach to.
inline constexpr uint8_t kGpusMax = 64;

// Text of at most N bytes, held in place. A longer one is refused by the decoder and cut by Set().
template <size_t N>
class Text {
 public:
  static constexpr size_t kCapacity = N;
  constexpr Text() = default;
  constexpr Text(std::string_view text) { Set(text); }  // NOLINT: a literal is a Text
  constexpr void Set(std::string_view text) {
    size_ = static_cast<uint16_t>(text.size() < N ? text.size() : N);
    for (size_t i = 0; i < size_; ++i) bytes_[i] = text[i];
  }
  constexpr std::string_view view() const { return {bytes_, size_}; }
  friend constexpr bool operator==(const Text& a, const Text& b) { return a.view() == b.view(); }

 private:
  char bytes_[N] = {};
  uint16_t size_ = 0;
};

// Bytes that belong to somebody else: valid while the frame they were decoded from is.
struct Bytes {
  const char* data = nullptr;
  size_t size = 0;
};

// The hook says, to batond or its relay:

// What the hook does while no backend answers.
enum class AwayMode : uint8_t {
  kWait = 0,  // launches wait
  kOpen = 1,  // launches pass after a grace period and are recorded as unmanaged time
};

// First frame of a connection. Answered by Welcome or Error.
struct Hello {
  static constexpr uint8_t kType = 1;
  Text<64> ticket;           // names the pod: BATON_TICKET, given out by the control socket
  uint64_t incarnation = 0;  // random, drawn at cuInit; the same when a process comes back
  AwayMode away = AwayMode::kWait;
  Text<128> command;  // what runs, for people to read
  Text<32> hook_version;
  bool words = false;  // its word's memory (wire/word.h) comes with the frame, and it reads others'
  template <class V>
  void Fields(V& v) {
    v(ticket), v(incarnation), v(away), v(command), v(hook_version), v(words);
  }
};

// The client is about to use a GPU. Repeats are harmless. Answered by Attached or Error.
struct Attach {
  static constexpr uint8_t kType = 2;
  uint8_t gpu = 0;  // the client's own index for this GPU in every later frame, < kGpusMax
  Text<64> uuid;    // "GPU-..." or "MIG-..." as cuDeviceGetUuid spells it
  uint64_t memory_total = 0;  // bytes, as the driver tells
  template <class V>
  void Fields(V& v) {
    v(gpu), v(uuid), v(memory_total);
  }
};

enum class Phase : uint8_t {
  kIdle = 0,      // wants nothing; everything up to `epoch` has drained
  kWaiting = 1,   // wants the token; everything up to `epoch` has drained
  kHolding = 2,   // launches under `epoch`
  kDraining = 3,  // launches no more under `epoch`; the GPU still works on what it launched
};

// Everything about a client on one GPU, at this moment. Sent at each change of phase and as a
// heartbeat (every heartbeat_ns of Attached). Counters are cumulative over the incarnation.
struct State {
  static constexpr uint8_t kType = 3;
  uint8_t gpu = 0;
  uint64_t seq = 0;  // grows by one per State of this client and GPU, over reconnects too
  Phase phase = Phase::kIdle;
  uint64_t epoch = 0;         // of the token last held (or held now); 0: none yet
  uint64_t rev = 0;           // revision of that token last seen
  uint64_t held_ns = 0;       // grant to drained, as the client measured it
  uint64_t busy_ns = 0;       // part of it in which the GPU is known to have executed
  uint64_t launches = 0;      // gated launches
  uint64_t waited_ns = 0;     // launch threads parked for the token, first to wait until granted
  uint64_t unmanaged_ns = 0;  // held open without a token while the backend was away
  uint64_t memory_bytes = 0;  // device memory charged now
  uint64_t backlog_ns = 0;    // predicted unfinished GPU time now
  uint64_t copies_bytes = 0;  // bytes of host-device copies (ungated)
  // Of a pod with swap:
  uint64_t movable_in = 0;     // bytes that can be moved to the host, and are on the GPU
  uint64_t memory_wanted = 0;  // bytes that are to come in, and that the GPU has no room for
  // How long ago its last hold had drained, as of this State; 0: it holds, or never held.
  uint64_t drained_ns = 0;
  // From when the holder before had drained, as its word says, to when the client opened its gate
  // for `epoch`: of a token that was sent ahead. 0: not known.
  uint64_t handoff_ns = 0;
  // What the GPU takes of late to come to this process from another one: from the client's first
  // launch after the other had drained to when the GPU began with it. 0: not known.
  uint64_t switch_ns = 0;
  template <class V>
  void Fields(V& v) {
    v(gpu), v(seq), v(phase), v(epoch), v(rev), v(held_ns), v(busy_ns), v(launches), v(waited_ns),
        v(unmanaged_ns), v(memory_bytes), v(backlog_ns), v(copies_bytes), v(movable_in),
        v(memory_wanted), v(drained_ns), v(handoff_ns), v(switch_ns);
  }
};

// Asks for the client's charged device memory on `gpu` to become `total` bytes, or tells that it
// has (a total not above the present one is always granted), or, with `refused`, that the program
// has got an out-of-memory error. Answered by MemoryReply.
struct Memory {
  static constexpr uint8_t kType = 4;
  uint8_t gpu = 0;
  uint64_t request = 0;  // echoed; grows, and an older one than the last seen is dropped
  uint64_t total = 0;    // bytes
  uint64_t movable = 0;  // of these, what can be moved to the host: of a pod with swap
  uint64_t refused =
      0;  // bytes that the program asked for in vain, not told more than once a second
  template <class V>
  void Fields(V& v) {
    v(gpu), v(request), v(total), v(movable), v(refused);
  }
};

// batond, or its relay, says to the hook:

struct Welcome {
  static constexpr uint8_t kType = 65;
  uint64_t client = 0;
  Text<128> pod;  // its name
  template <class V>
  void Fields(V& v) {
    v(client), v(pod);
  }
};

struct Attached {
  static constexpr uint8_t kType = 66;
  uint8_t gpu = 0;
  bool gated = true;           // false: observe mode, meter only
  uint64_t memory_cap = 0;     // bytes for the whole pod on this GPU; 0: no cap
  uint64_t idle_ns = 0;        // return the token after this long without work
  uint64_t backlog_ns = 0;     // park launching threads above this much predicted GPU time
  uint64_t heartbeat_ns = 0;   // send a State at least this often
  uint64_t open_after_ns = 0;  // AwayMode::kOpen: launch without a token after this long alone
  bool gang = false;           // a drain that waits for a launch is the backend's to reopen
  // As backlog_ns, for a moment after its threads woke up late; 0, or less: no more than that.
  uint64_t late_backlog_ns = 0;
  template <class V>
  void Fields(V& v) {
    v(gpu), v(gated), v(memory_cap), v(idle_ns), v(backlog_ns), v(heartbeat_ns), v(open_after_ns),
        v(gang), v(late_backlog_ns);
  }
};

// A token of at most this length is for one launch, and the gate stays open until it has gone: with
// it the ranks of a gang that are behind catch up with the others, and no further.
inline constexpr Duration kSingleLaunch = std::chrono::microseconds(50);

// The right to launch on `gpu` for quota_ns from the receipt of this frame. Zero: close the gate
// now and drain. (epoch, rev) orders tokens; a client follows the highest pair it has seen. A
// higher rev of the epoch held extends it, or reopens the gate of a client that is draining.
struct Token {
  static constexpr uint8_t kType = 67;
  uint8_t gpu = 0;
  uint64_t epoch = 0;
  uint64_t rev = 0;
  uint64_t quota_ns = 0;
  bool contended = false;  // somebody else waits: return it as soon as the work runs out
  // Not 0: it was sent ahead. It begins, and its quota counts, once that client's word says that
  // (after_epoch, after_rev) or more has drained. The word is at `after_gpu` of the memory whose
  // descriptor comes with the frame (wire/word.h); without one the Token means nothing yet.
  uint64_t after_client = 0;
  uint64_t after_epoch = 0;
  uint64_t after_rev = 0;
  uint8_t after_gpu = 0;
  template <class V>
  void Fields(V& v) {
    v(gpu), v(epoch), v(rev), v(quota_ns), v(contended);
    v(after_client), v(after_epoch), v(after_rev), v(after_gpu);
  }
};

struct MemoryReply {
  static constexpr uint8_t kType = 68;
  uint8_t gpu = 0;
  uint64_t request = 0;
  bool granted = false;
  uint64_t memory_cap = 0;  // bytes; 0: no cap
  uint64_t pod_used = 0;    // bytes, all the pod's clients on this GPU
  bool host_full = false;   // refused for want of host memory that it could be moved to
  template <class V>
  void Fields(V& v) {
    v(gpu), v(request), v(granted), v(memory_cap), v(pod_used), v(host_full);
  }
};

enum class ErrorKind : uint8_t {
  kMalformed = 1,    // the frame is no message
  kVersion = 2,      // neither N nor N ± 1
  kUnknownPod = 3,   // the ticket names no pod (any more)
  kDenied = 4,       // not yours to ask
  kUnknownGpu = 5,   // the GPU is not managed here, or not this pod's
  kLimit = 6,        // too many clients or frames
  kProtocol = 7,     // a message that makes no sense now
  kUnavailable = 8,  // the backend behind the relay is away
};

// The sender closes the connection after it, but for kUnavailable.
struct Error {
  static constexpr uint8_t kType = 69;
  ErrorKind kind = ErrorKind::kMalformed;
  Text<256> text;  // a sentence that says what to do
  template <class V>
  void Fields(V& v) {
    v(kind), v(text);
  }
};

// Asks the client to send a State for every GPU it attached: the backend restarted, or the link to
// it was cut and frames may be lost.
struct Sync {
  static constexpr uint8_t kType = 70;
  template <class V>
  void Fields(V&) {}
};

// To a process of a pod with swap: no more than `keep` bytes of what can be moved are to stay on
// the GPU. It moves the rest to the host unless it has the token by then, and says so by its State.
// Asked again for as long as there is need; a hook of before leaves it unread.
struct MakeRoom {
  static constexpr uint8_t kType = 71;
  uint8_t gpu = 0;
  uint64_t keep = 0;  // bytes
  template <class V>
  void Fields(V& v) {
    v(gpu), v(keep);
  }
};

// A relay and batond say to each other, by ZeroMQ:

// First frame of a relay, and its answer to NodeSync. `instance` is random per start of the relay.
struct NodeHello {
  static constexpr uint8_t kType = 32;
  Text<64> node;
  uint64_t instance = 0;
  Text<16384> gpus;      // one line per GPU: "uuid memory_bytes model"
  bool batches = false;  // it understands FramesDown
  template <class V>
  void Fields(V& v) {
    v(node), v(instance), v(gpus), v(batches);
  }
};

// A process connected to the relay. Repeated for each client after NodeSync.
struct ClientUp {
  static constexpr uint8_t kType = 33;
  uint64_t client = 0;      // the relay's number for it
  uint64_t pid = 0;         // host pid and start time, from the kernel
  uint64_t start_time = 0;  // clock ticks since boot, /proc/PID/stat field 22
  uint64_t uid = 0;
  Bytes hello;              // the client's Hello frame as it came
  Text<64> kubernetes_pod;  // uid of the pod that its cgroup names; empty: none
  bool words = false;       // as Hello says, and the relay has found to be so
  template <class V>
  void Fields(V& v) {
    v(client), v(pid), v(start_time), v(uid), v(hello), v(kubernetes_pod), v(words);
  }
};

enum class DownReason : uint8_t {
  kExited = 0,        // the process is gone and its GPU work has ended
  kDisconnected = 1,  // it closed its socket but lives
};

struct ClientDown {
  static constexpr uint8_t kType = 34;
  uint64_t client = 0;
  DownReason reason = DownReason::kExited;
  template <class V>
  void Fields(V& v) {
    v(client), v(reason);
  }
};

// A client's frame (Attach, State, Memory), with what the node's own clock measured.
struct ClientFrame {
  static constexpr uint8_t kType = 35;
  uint64_t client = 0;
  uint64_t held_ns = 0;  // State after a hold: Token passed on -> this State received; else 0
  Bytes frame;
  // With held_ns: the same of its pod, from the first Token of that epoch that was passed on to any
  // of the pod's clients; 0: not known.
  uint64_t pod_held_ns = 0;
  uint64_t age_ns = 0;  // of a State that is said again: how long ago it was received
  // The client has ended: held_ns is of its last token, and the State names that, and its GPU,
  // alone.
  bool ended = false;
  template <class V>
  void Fields(V& v) {
    v(client), v(held_ns), v(frame), v(pod_held_ns), v(age_ns), v(ended);
  }
};

// A control request of the node's control socket, or its answer; JSON as on that socket.
struct Control {
  static constexpr uint8_t kType = 36;
  uint64_t request = 0;
  Bytes json;
  template <class V>
  void Fields(V& v) {
    v(request), v(json);
  }
};

// Either side, when it has sent nothing else for a heartbeat.
struct Ping {
  static constexpr uint8_t kType = 37;
  uint64_t instance = 0;  // the sender's
  template <class V>
  void Fields(V& v) {
    v(instance);
  }
};

// The relay's answer to NodeCheck: is that process still there?
struct NodeChecked {
  static constexpr uint8_t kType = 38;
  uint64_t pid = 0;
  uint64_t start_time = 0;
  bool alive = false;
  template <class V>
  void Fields(V& v) {
    v(pid), v(start_time), v(alive);
  }
};

// First frame of a node's batond that has this one as its upstream, repeated until it is answered
// by BooksWelcome.
struct BooksHello {
  static constexpr uint8_t kType = 39;
  Text<64> node;
  Text<64> source;  // its usage book's identity
  template <class V>
  void Fields(V& v) {
    v(node), v(source);
  }
};

// What was used there so far: ledger::EncodeBatch(). Answered by BooksAck once it is in the books,
// and not at all where that does not work now.
struct BooksBatch {
  static constexpr uint8_t kType = 40;
  uint64_t seq = 0;  // the batch's
  Bytes batch;
  template <class V>
  void Fields(V& v) {
    v(seq), v(batch);
  }
};

// Many frames of a relay (wire/batch.h), to a batond that understands that; none of them another
// FramesUp, or of books.
struct FramesUp {
  static constexpr uint8_t kType = 41;
  Bytes frames;
  template <class V>
  void Fields(V& v) {
    v(frames);
  }
};

// batond's answer to NodeHello. `instance` is random per start of batond: a relay that sees a new
// one says everything again (NodeHello, ClientUp, Attach) and passes Sync to its clients.
struct NodeWelcome {
  static constexpr uint8_t kType = 96;
  uint64_t instance = 0;
  uint64_t heartbeat_ns = 0;
  bool batches = false;  // batond understands FramesUp
  template <class V>
  void Fields(V& v) {
    v(instance), v(heartbeat_ns), v(batches);
  }
};

// A frame for one client, to be passed on as it is.
struct ToClient {
  static constexpr uint8_t kType = 97;
  uint64_t client = 0;
  Bytes frame;
  template <class V>
  void Fields(V& v) {
    v(client), v(frame);
  }
};

// "Say everything again": batond does not know this relay (it restarted, or lost it).
struct NodeSync {
  static constexpr uint8_t kType = 98;
  template <class V>
  void Fields(V&) {}
};

// Up to this batch everything of the node's source is in the books.
struct BooksWelcome {
  static constexpr uint8_t kType = 101;
  uint64_t seq = 0;
  template <class V>
  void Fields(V& v) {
    v(seq);
  }
};

struct BooksAck {
  static constexpr uint8_t kType = 102;
  uint64_t seq = 0;
  template <class V>
  void Fields(V& v) {
    v(seq);
  }
};

// The teams of the whole cluster and what they used, for the node to go by. JSON: {"teams": the
// file's text, "uses": [[team, user, decayed nanoseconds that count, others]], "held": {team: hours
// in its budget's period}}.
struct TeamsState {
  static constexpr uint8_t kType = 103;
  Bytes json;
  template <class V>
  void Fields(V& v) {
    v(json);
  }
};

// Is the process that held a GPU when batond last knew still there? Answered by NodeChecked.
struct NodeCheck {
  static constexpr uint8_t kType = 99;
  uint64_t pid = 0;
  uint64_t start_time = 0;
  template <class V>
  void Fields(V& v) {
    v(pid), v(start_time);
  }
};

// Many frames for a relay (wire/batch.h), where it understands that; none of them another
// FramesDown.
struct FramesDown {
  static constexpr uint8_t kType = 104;
  Bytes frames;
  template <class V>
  void Fields(V& v) {
    v(frames);
  }
};

// SIGKILL for a client whose drain timed out, where the configuration says so.
struct KillClient {
  static constexpr uint8_t kType = 100;
  uint64_t client = 0;
  template <class V>
  void Fields(V& v) {
    v(client);
  }
};

}  // namespace baton::wire

#endif  // BATON_WIRE_MESSAGES_H_
