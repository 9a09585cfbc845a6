#include "hook/pod_figures.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "hook/gpu.h"
#include "hook/libc.h"
#include "wire/codec.h"

namespace baton::hook {
namespace {

constexpr timeval kPatience = {0, 300'000};
// A GPU that is not the pod's may become so.
constexpr Duration kRefusedFor = std::chrono::seconds(5);
constexpr int kFramesMax = 64;  // between a question and its answer

struct Known {
  wire::Text<64> uuid;
  bool attached = false;  // on this connection
  bool seen = false;      // `memory` is what was last said
  Instant refused_until{};
  uint64_t request = 0;
  PodMemory memory;
};

struct Link {
  Lock lock;
  int fd = -1;
  uint64_t incarnation = 0;
  int count = 0;
  Known gpus[kGpusMax];
};
Link g_figures;

void Close() {
  if (g_figures.fd >= 0) close(g_figures.fd);
  g_figures.fd = -1;
  for (Known& gpu : g_figures.gpus) gpu.attached = false;
}

// In the child after fork, which is another client.
void ForgetLink() {
  g_figures.lock.Reset();
  Close();
  g_figures.incarnation = 0;
}

template <class Message>
bool SendFrame(const Message& message) {
  char frame[wire::kTenantFrameMax];
  const size_t n = wire::Encode(message, frame, sizeof(frame));
  ssize_t sent;
  do {
    sent = send(g_figures.fd, frame, n, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return n > 0 && sent == static_cast<ssize_t>(n);
}

// Reads until `take(frame)` says that the answer has come. False: the connection is of no more use.
template <class Take>
bool Await(Take take) {
  char data[wire::kTenantFrameMax];
  for (int i = 0; i < kFramesMax; ++i) {
    const ssize_t n = recv(g_figures.fd, data, sizeof(data), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    wire::Frame frame;
    if (frame.Parse(data, static_cast<size_t>(n)) != wire::DecodeStatus::kOk) return false;
    if (frame.type() == wire::Error::kType) return false;
    if (frame.type() == wire::Sync::kType) {
      for (Known& gpu : g_figures.gpus) gpu.attached = false;
    }
    if (take(frame)) return true;
  }
  return false;
}

bool Open() {
  const char* path = getenv("BATON_SOCKET");
  const char* ticket = getenv("BATON_TICKET");
  if (path == nullptr || path[0] == 0) path = "/run/baton/baton.sock";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (ticket == nullptr || ticket[0] == 0 || strlen(path) >= sizeof(address.sun_path)) return false;
  strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
  g_figures.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (g_figures.fd < 0) return false;
  setsockopt(g_figures.fd, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
  setsockopt(g_figures.fd, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  if (g_figures.incarnation == 0) g_figures.incarnation = Random64();
  wire::Hello hello;
  hello.ticket = std::string_view(ticket);
  hello.incarnation = g_figures.incarnation;
  char command[128];
  hello.command = std::string_view(command, CommandLine(command, sizeof(command)));
  return connect(g_figures.fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
         SendFrame(hello) &&
         Await([](const wire::Frame& frame) { return frame.type() == wire::Welcome::kType; });
}

bool Attach(Known& gpu, uint8_t index) {
  wire::Attach attach;
  attach.gpu = index;
  attach.uuid = gpu.uuid;
  gpu.attached = true;
  if (SendFrame(attach) && Await([index](const wire::Frame& frame) {
        wire::Attached attached;
        return frame.type() == wire::Attached::kType && frame.Read(attached) &&
               attached.gpu == index;
      })) {
    return true;
  }
  gpu.refused_until = MonotonicNow() + kRefusedFor;
  return false;
}

bool AskMemory(Known& gpu, uint8_t index) {
  wire::Memory question;
  question.gpu = index;
  question.request = ++gpu.request;
  return SendFrame(question) && Await([&](const wire::Frame& frame) {
           wire::MemoryReply reply;
           if (frame.type() != wire::MemoryReply::kType || !frame.Read(reply) ||
               reply.gpu != index || reply.request != question.request) {
             return false;
           }
           gpu.memory = {reply.memory_cap, reply.pod_used};
           gpu.seen = true;
           return true;
         });
}

// Null: there are too many.
Known* Find(std::string_view uuid) {
  for (int i = 0; i < g_figures.count; ++i) {
    if (g_figures.gpus[i].uuid.view() == uuid) return &g_figures.gpus[i];
  }
  if (g_figures.count == kGpusMax) return nullptr;
  Known* gpu = &g_figures.gpus[g_figures.count++];
  gpu->uuid = uuid;
  return gpu;
}

}  // namespace

bool AskPodMemory(const char* uuid, PodMemory* memory) {
  static std::atomic<bool> at_fork{false};
  if (!at_fork.exchange(true)) AfterFork(ForgetLink);
  Guard guard(g_figures.lock);
  Known* gpu = Find(uuid);
  if (gpu == nullptr || MonotonicNow() < gpu->refused_until) return false;
  const auto index = static_cast<uint8_t>(gpu - g_figures.gpus);
  // Where the daemon was away or has restarted, once more.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const bool fresh = g_figures.fd < 0;
    if ((!fresh || Open()) && (gpu->attached || Attach(*gpu, index)) && AskMemory(*gpu, index)) {
      *memory = gpu->memory;
      return true;
    }
    Close();
    if (fresh) break;
  }
  *memory = gpu->memory;
  return gpu->seen;
}

bool IsOfPod(uint32_t pid) {
  if (pid == static_cast<uint32_t>(getpid())) return true;
  const char* ticket = getenv("BATON_TICKET");
  char wanted[128], path[64];
  const int size = snprintf(wanted, sizeof(wanted), "BATON_TICKET=%s", ticket ? ticket : "");
  snprintf(path, sizeof(path), "/proc/%u/environ", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || size <= 0 || size >= static_cast<int>(sizeof(wanted))) {
    if (fd >= 0) close(fd);
    return false;
  }
  // Each variable ends in a zero, and `wanted` with its own is found at a variable's beginning.
  char part[4096];
  int matched = 0;  // of `wanted`; -1: not this variable
  bool found = false;
  for (ssize_t n; !found && (n = read(fd, part, sizeof(part))) > 0;) {
    for (ssize_t i = 0; i < n && !found; ++i) {
      if (matched >= 0 && part[i] == wanted[matched]) {
        found = part[i] == 0;
        ++matched;
      } else {
        matched = part[i] == 0 ? 0 : -1;
      }
    }
  }
  close(fd);
  return found;
}

}  // namespace baton::hook
