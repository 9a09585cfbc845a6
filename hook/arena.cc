#include "hook/arena.h"

#include <stdlib.h>
#include <string.h>

namespace baton::hook {

uint64_t Arena::Rounded(uint64_t bytes) {
  if (bytes > UINT64_MAX - kGranule) return UINT64_MAX;
  return (bytes + kGranule - 1) / kGranule * kGranule;
}

uint64_t Arena::BytesOf(const Block* block, uint32_t part) {
  const uint64_t left = block->bytes - uint64_t{part} * kPart;
  return left < kPart ? left : kPart;
}

CUdeviceptr Arena::AddressOf(const Block* block, uint32_t part) {
  return block->base + uint64_t{part} * kPart;
}

// The number of blocks that begin at or below the address.
int Arena::PlaceOf(CUdeviceptr address) const {
  int from = 0, to = count_;
  while (from < to) {
    const int middle = (from + to) / 2;
    if (blocks_[middle]->base <= address) {
      from = middle + 1;
    } else {
      to = middle;
    }
  }
  return from;
}

Arena::Block* Arena::BlockOf(CUdeviceptr address) const {
  const int place = PlaceOf(address);
  if (place == 0) return nullptr;
  Block* block = blocks_[place - 1];
  return address - block->base < block->bytes ? block : nullptr;
}

bool Arena::Enter(Block* block) {
  if (count_ == room_) {
    const int room = room_ == 0 ? 64 : 2 * room_;
    auto** more = static_cast<Block**>(
        realloc(static_cast<void*>(blocks_), static_cast<size_t>(room) * sizeof(void*)));
    if (more == nullptr) return false;
    blocks_ = more;
    room_ = room;
  }
  const int place = PlaceOf(block->base);
  memmove(static_cast<void*>(blocks_ + place + 1), static_cast<const void*>(blocks_ + place),
          static_cast<size_t>(count_ - place) * sizeof(void*));
  blocks_[place] = block;
  ++count_;
  return true;
}

bool Arena::ShareIn(Block* block, uint64_t bytes, CUdeviceptr* p) {
  Sharing& s = *block->sharing;
  const auto wanted = static_cast<uint32_t>((bytes + kUnit - 1) / kUnit);
  uint32_t run = 0;
  for (uint32_t i = 0; i < Sharing::kUnits; ++i) {
    run = s.used[i] ? 0 : run + 1;
    if (run < wanted) continue;
    const uint32_t first = i + 1 - wanted;
    for (uint32_t u = first; u <= i; ++u) s.used[u] = true;
    s.units[first] = static_cast<uint16_t>(wanted);
    s.asked[first] = static_cast<uint32_t>(bytes);
    ++s.allocations;
    *p = block->base + first * kUnit;
    return true;
  }
  return false;
}

bool Arena::Share(CUcontext context, uint64_t bytes, CUdeviceptr* p) {
  if (bytes == 0 || bytes > kSmall) return false;
  Guard guard(lock_);
  for (int i = 0; i < count_; ++i) {
    Block* block = blocks_[i];
    if (block->sharing == nullptr || block->context != context) continue;
    if (ShareIn(block, bytes, p)) return true;
  }
  return false;
}

// Physical memory behind a part that has none.
CUresult Arena::Back(Block* block, uint32_t part) {
  return driver_->back(device_, AddressOf(block, part), BytesOf(block, part),
                       &block->part[part].handle);
}

CUresult Arena::Add(CUcontext context, uint64_t bytes, CUdeviceptr* p) {
  const uint64_t rounded = Rounded(bytes);
  // More than any device has: parts are counted in 32 bits.
  if (bytes == 0 || rounded > uint64_t{1} << 50) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto parts = static_cast<uint32_t>((rounded + kPart - 1) / kPart);
  auto* block = static_cast<Block*>(calloc(1, sizeof(Block) + parts * sizeof(Part)));
  if (block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  block->bytes = rounded;
  block->asked = bytes;
  block->context = context;
  block->parts = parts;
  if (bytes <= kSmall) {
    block->sharing = static_cast<Sharing*>(calloc(1, sizeof(Sharing)));
    if (block->sharing == nullptr) {
      free(block);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  Guard guard(lock_);
  CUresult result = driver_->reserve(&block->base, rounded);
  if (result == CUDA_SUCCESS && !Enter(block)) {
    driver_->unreserve(block->base, rounded);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) {
    free(block->sharing);
    free(block);
    return result;
  }
  block->id = ++last_id_;
  bytes_.fetch_add(rounded);
  for (uint32_t i = 0; i < parts; ++i) {
    result = Back(block, i);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) break;
    if (result != CUDA_SUCCESS) {
      Drop(PlaceOf(block->base) - 1);
      return result;
    }
    block->part[i].state = State::kIn;
    in_.fetch_add(BytesOf(block, i));
  }
  *p = block->base;
  if (block->sharing != nullptr) ShareIn(block, bytes, p);
  return CUDA_SUCCESS;
}

void Arena::Unpin(Block* block, uint32_t part) {
  void*& host = block->part[part].host;
  if (host == nullptr) return;
  driver_->unpin(block->context, host);
  pinned_.fetch_sub(BytesOf(block, part));
  host = nullptr;
}

// Frees the block, whatever is in it.
void Arena::Drop(int place) {
  Block* block = blocks_[place];
  for (uint32_t i = 0; i < block->parts; ++i) {
    const uint64_t bytes = BytesOf(block, i);
    if (block->part[i].state == State::kIn) {
      driver_->unback(AddressOf(block, i), bytes, block->part[i].handle);
      in_.fetch_sub(bytes);
    }
    Unpin(block, i);
  }
  driver_->unreserve(block->base, block->bytes);
  bytes_.fetch_sub(block->bytes);
  --count_;
  memmove(static_cast<void*>(blocks_ + place), static_cast<const void*>(blocks_ + place + 1),
          static_cast<size_t>(count_ - place) * sizeof(void*));
  free(block->sharing);
  free(block);
}

bool Arena::Free(CUdeviceptr p, uint64_t* freed) {
  *freed = 0;
  Guard guard(lock_);
  Block* block = BlockOf(p);
  if (block == nullptr) return false;
  if (Sharing* s = block->sharing) {
    const uint64_t offset = p - block->base;
    const uint64_t first = offset / kUnit;
    if (offset % kUnit != 0 || s->units[first] == 0) return false;
    for (uint32_t u = 0; u < s->units[first]; ++u) s->used[first + u] = false;
    s->units[first] = 0;
    if (--s->allocations > 0) return true;
  } else if (p != block->base) {
    return false;
  }
  *freed = block->bytes;
  Drop(PlaceOf(p) - 1);
  return true;
}

uint64_t Arena::Forget(CUcontext context) {
  uint64_t bytes = 0;
  for (int i = count_ - 1; i >= 0; --i) {
    Block* block = blocks_[i];
    if (block->context != context) continue;
    bytes += block->bytes;
    // The driver has freed what was pinned.
    for (uint32_t part = 0; part < block->parts; ++part) {
      if (block->part[part].host == nullptr) continue;
      pinned_.fetch_sub(BytesOf(block, part));
      block->part[part].host = nullptr;
    }
    Drop(i);
  }
  return bytes;
}

bool Arena::Find(CUdeviceptr address, Allocation* found) {
  Guard guard(lock_);
  Block* block = BlockOf(address);
  if (block == nullptr) return false;
  *found = {block->base, block->asked, block->context, block->id << 16, true};
  for (uint32_t i = 0; i < block->parts; ++i) {
    found->in = found->in && block->part[i].state == State::kIn;
  }
  if (const Sharing* s = block->sharing) {
    auto first = static_cast<uint32_t>((address - block->base) / kUnit);
    if (!s->used[first]) return false;
    while (s->units[first] == 0) --first;
    found->base = block->base + first * kUnit;
    found->bytes = s->asked[first];
    found->id += first;
  }
  return address - found->base < found->bytes;
}

CUcontext Arena::context() {
  Guard guard(lock_);
  return count_ == 0 ? nullptr : blocks_[0]->context;
}

// Pinned memory for the part, so that no more than `most` bytes are pinned. What parts on the
// device have kept goes first.
bool Arena::Pin(Block* block, uint32_t part, uint64_t most) {
  if (block->part[part].host != nullptr) return true;
  const uint64_t bytes = BytesOf(block, part);
  for (int i = 0; i < count_ && pinned_.load() + bytes > most; ++i) {
    for (uint32_t k = 0; k < blocks_[i]->parts && pinned_.load() + bytes > most; ++k) {
      if (blocks_[i]->part[k].state == State::kIn) Unpin(blocks_[i], k);
    }
  }
  if (pinned_.load() + bytes > most) return false;
  if (driver_->pin(block->context, bytes, &block->part[part].host) != CUDA_SUCCESS) {
    block->part[part].host = nullptr;
    return false;
  }
  pinned_.fetch_add(bytes);
  return true;
}

bool Arena::MoveOut(uint64_t keep) {
  Guard guard(lock_);
  const uint64_t all = bytes_.load();
  if (in_.load() <= keep) return false;
  const uint64_t most = (all > keep ? all - keep : 0) + kPart;
  Moving batch[kBatch];
  int begun = 0;
  uint64_t stays = in_.load();
  // Always in the same order, so that what stays pinned is of use the next time.
  for (int i = count_ - 1; i >= 0 && begun < kBatch && stays > keep; --i) {
    Block* block = blocks_[i];
    for (uint32_t k = block->parts; k-- > 0 && begun < kBatch && stays > keep;) {
      if (block->part[k].state != State::kIn || !Pin(block, k, most)) continue;
      const uint64_t bytes = BytesOf(block, k);
      if (driver_->copy_out(block->context, block->part[k].host, AddressOf(block, k), bytes) !=
          CUDA_SUCCESS) {
        continue;
      }
      batch[begun++] = {block, k};
      stays -= bytes;
    }
  }
  bool moved = false;
  for (int i = 0; i < begun; ++i) {
    auto [block, k] = batch[i];
    Part& part = block->part[k];
    const uint64_t bytes = BytesOf(block, k);
    if (driver_->finish(block->context) != CUDA_SUCCESS ||
        driver_->unback(AddressOf(block, k), bytes, part.handle) != CUDA_SUCCESS) {
      continue;
    }
    part.state = State::kOut;
    in_.fetch_sub(bytes);
    moved = true;
  }
  return moved;
}

CUresult Arena::MoveIn() {
  Guard guard(lock_);
  Moving batch[kBatch];
  int begun = 0;
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < count_ && begun < kBatch && result == CUDA_SUCCESS; ++i) {
    Block* block = blocks_[i];
    for (uint32_t k = 0; k < block->parts && begun < kBatch && result == CUDA_SUCCESS; ++k) {
      Part& part = block->part[k];
      if (part.state == State::kIn) continue;
      result = Back(block, k);
      if (result != CUDA_SUCCESS) break;
      // Where a context is broken the program gets its error from its next call.
      if (part.state == State::kOut) {
        driver_->copy_in(block->context, AddressOf(block, k), part.host, BytesOf(block, k));
      }
      part.state = State::kIn;
      batch[begun++] = {block, k};
    }
  }
  for (int i = 0; i < begun; ++i) {
    driver_->finish(batch[i].block->context);
    in_.fetch_add(BytesOf(batch[i].block, batch[i].part));
  }
  return begun > 0 ? CUDA_SUCCESS : result;
}

}  // namespace baton::hook
