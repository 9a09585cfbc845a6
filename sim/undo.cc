#include "sim/undo.h"

#include <signal.h>
#include <unistd.h>

#include "base/check.h"

namespace baton::sim {
namespace {

std::atomic<int64_t> kill_at_write{0};

}  // namespace

void Undo::KillAtWriteForTest(int64_t n) { kill_at_write = n; }

void Undo::Set(Cell& cell, uint64_t value) {
  if (cell.value_ == value) return;
  BATON_CHECK(file_->undo_count < kUndoEntries);
  UndoEntry& entry = file_->undo[file_->undo_count];
  entry.offset =
      static_cast<uint64_t>(reinterpret_cast<char*>(&cell) - reinterpret_cast<char*>(file_));
  entry.old = cell.value_;
  // A kill leaves a prefix of the program's stores; the fences keep the compiler to their order.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  file_->undo_count = file_->undo_count + 1;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  cell.value_ = value;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (__builtin_expect(kill_at_write.load(std::memory_order_relaxed) != 0, 0)) {
    if (kill_at_write.fetch_sub(1) == 1) kill(getpid(), SIGKILL);
  }
}

void Undo::Commit() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  file_->undo_count = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

void Undo::Recover() {
  while (file_->undo_count > 0) {
    const UndoEntry& entry = file_->undo[file_->undo_count - 1];
    reinterpret_cast<Cell*>(reinterpret_cast<char*>(file_) + entry.offset)->value_ = entry.old;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    file_->undo_count = file_->undo_count - 1;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
}

}  // namespace baton::sim
