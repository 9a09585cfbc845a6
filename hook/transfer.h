// What copies share: whether one is GPU work, and how big it is.
#ifndef BATON_HOOK_TRANSFER_H_
#define BATON_HOOK_TRANSFER_H_

#include "hook/entries.h"
#include "hook/mover.h"

namespace baton::hook {

inline constexpr CUstream kSync = nullptr;  // the spellings without a stream run in stream 0

inline bool OnDevice(CUdeviceptr p) {
  unsigned type = 0;
  // What the driver does not know is ordinary host memory.
  auto* ask = RealAs<CUresult(void*, CUpointer_attribute, CUdeviceptr)>(Fn::cuPointerGetAttribute);
  return ask != nullptr && ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_DEVICE;
}

inline bool OnDevice(CUmemorytype type, CUdeviceptr p) {
  if (type == CU_MEMORYTYPE_UNIFIED) return OnDevice(p);
  return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY;
}

// Looked at only where it matters: a process that is not managed pays nothing. A pod's memory that
// can be moved must be there: all its copies wait for the token.
template <class Call>
CUresult Copy(CUstream stream, bool on_device, uint64_t bytes, Call call) {
  if (on_device || Swaps()) return Launch(stream, BytesKey(Kind::kCopy, bytes), call);
  CountCopy(bytes);
  return call();
}

inline bool BothOnDevice(CUdeviceptr a, CUdeviceptr b) {
  return Managed() && OnDevice(a) && OnDevice(b);
}

// `box`: what a copy in two or three dimensions is told, of any generation.
template <class Box>
bool BothOnDevice(const Box* box) {
  return Managed() && box != nullptr && OnDevice(box->srcMemoryType, box->srcDevice) &&
         OnDevice(box->dstMemoryType, box->dstDevice);
}
template <class Box>
uint64_t Bytes(const Box* box) {
  if (box == nullptr) return 0;
  uint64_t bytes = uint64_t{box->WidthInBytes} * box->Height;
  if constexpr (requires { box->Depth; }) bytes *= box->Depth;
  return bytes;
}

}  // namespace baton::hook

#endif  // BATON_HOOK_TRANSFER_H_
