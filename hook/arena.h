// Device memory that can be moved: the allocations of a pod with swap on one GPU.
//
// An allocation is a range of reserved addresses with physical memory behind it, in parts of at
// most kPart. A part can be moved to pinned memory of the host and back: its address and contents
// stay. Small allocations share a block of one granule, which is moved as a whole.
//
//   a part:   new ───▶ in ◀───▶ out       new: nothing is behind it yet, and it has no contents
//
// Between the arena and CUDA stands a table of functions, so a test can move memory without a GPU.
// Thread safe; a lock is held while a batch is moved. Never frees addresses that are in use.
#ifndef BATON_HOOK_ARENA_H_
#define BATON_HOOK_ARENA_H_

#include <stdint.h>

#include "hook/cuda_types.h"
#include "hook/libc.h"

namespace baton::hook {

// What an arena needs of the driver. Each returns the driver's error.
struct ArenaDriver {
  CUresult (*reserve)(CUdeviceptr* base, uint64_t bytes);
  void (*unreserve)(CUdeviceptr base, uint64_t bytes);
  // Physical memory of `device` behind the addresses. CUDA_ERROR_OUT_OF_MEMORY: there is none.
  CUresult (*back)(CUdevice device, CUdeviceptr at, uint64_t bytes, uint64_t* handle);
  CUresult (*unback)(CUdeviceptr at, uint64_t bytes, uint64_t handle);
  // Pinned memory of the host, which goes with the context.
  CUresult (*pin)(CUcontext context, uint64_t bytes, void** host);
  void (*unpin)(CUcontext context, void* host);
  // Begin a copy; finish() waits for those that were begun in the context.
  CUresult (*copy_out)(CUcontext context, void* host, CUdeviceptr from, uint64_t bytes);
  CUresult (*copy_in)(CUcontext context, CUdeviceptr to, const void* host, uint64_t bytes);
  CUresult (*finish)(CUcontext context);
};

class Arena {
 public:
  static constexpr uint64_t kGranule = 2 << 20;  // of physical memory and of what is charged
  static constexpr uint64_t kPart = 64 << 20;
  static constexpr uint64_t kSmall = 1 << 20;  // up to here allocations share a block
  static constexpr uint64_t kUnit = 4096;      // of those

  // Before anything else. `driver` stays.
  void Init(const ArenaDriver* driver, CUdevice device) { driver_ = driver, device_ = device; }

  // Bytes that an allocation takes that does not share a block; UINT64_MAX: too many.
  static uint64_t Rounded(uint64_t bytes);
  // A small allocation out of a block that is there. False: none has room.
  bool Share(CUcontext context, uint64_t bytes, CUdeviceptr* p);
  // One with a block of its own, or the first of a shared one: Rounded(bytes) more. What the driver
  // has no physical memory for is new(). Any other error of the driver leaves the arena as it was.
  CUresult Add(CUcontext context, uint64_t bytes, CUdeviceptr* p);
  // Frees the allocation at `p`. Nothing may work on it. `freed`: bytes of its block, or 0 where
  // others still share that. False: there is none at `p`.
  bool Free(CUdeviceptr p, uint64_t* freed);
  // Bytes of all blocks of a context that is gone, which are forgotten. lock() is held.
  uint64_t Forget(CUcontext context);

  struct Allocation {
    CUdeviceptr base;
    uint64_t bytes;  // as asked
    CUcontext context;
    uint64_t id;
    bool in;  // all of its block is on the device
  };
  // The allocation that has the address. False: none.
  bool Find(CUdeviceptr address, Allocation* found);

  // Moves parts to the host until no more than `keep` bytes are on the device, a few at a time, and
  // pins no more than what is above `keep`, and one part. False: no part was moved.
  bool MoveOut(uint64_t keep);
  // Moves a few parts in. CUDA_ERROR_OUT_OF_MEMORY: the device has no room for the next one.
  CUresult MoveIn();

  uint64_t bytes() const { return bytes_.load(); }    // of all blocks
  uint64_t in() const { return in_.load(); }          // on the device
  uint64_t pinned() const { return pinned_.load(); }  // of the host
  uint64_t missing() const { return bytes() - in(); }
  // A context with memory here; null: there is none.
  CUcontext context();

  // Held by who destroys a context, so that nothing is moved in it meanwhile.
  Lock& lock() { return lock_; }

 private:
  static constexpr int kBatch = 4;  // parts whose copies overlap with the driver's other work
  enum class State : uint8_t { kNew, kIn, kOut };
  struct Part {
    uint64_t handle;
    void* host;  // stays pinned after the part has come in, for the next time
    State state;
  };
  struct Sharing {
    static constexpr uint32_t kUnits = kGranule / kUnit;
    uint32_t allocations;
    uint16_t units[kUnits];  // at the first unit of an allocation; 0: none
    bool used[kUnits];
    uint32_t asked[kUnits];
  };
  struct Block {
    CUdeviceptr base;
    uint64_t bytes;
    uint64_t asked;
    CUcontext context;
    uint64_t id;
    Sharing* sharing;  // null: it is one allocation
    uint32_t parts;
    Part part[1];
  };
  struct Moving {
    Block* block;
    uint32_t part;
  };

  static uint64_t BytesOf(const Block* block, uint32_t part);
  static CUdeviceptr AddressOf(const Block* block, uint32_t part);
  Block* BlockOf(CUdeviceptr address) const;
  int PlaceOf(CUdeviceptr address) const;
  bool Enter(Block* block);
  bool ShareIn(Block* block, uint64_t bytes, CUdeviceptr* p);
  CUresult Back(Block* block, uint32_t part);
  bool Pin(Block* block, uint32_t part, uint64_t most);
  void Unpin(Block* block, uint32_t part);
  void Drop(int place);

  Lock lock_;
  const ArenaDriver* driver_ = nullptr;
  CUdevice device_ = 0;
  Block** blocks_ = nullptr;  // by address
  int count_ = 0;
  int room_ = 0;
  uint64_t last_id_ = 0;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> in_{0};
  std::atomic<uint64_t> pinned_{0};
};

}  // namespace baton::hook

#endif  // BATON_HOOK_ARENA_H_
