// Copies, sets and stream-ordered memory. Compiled twice, like api_stream.cc.
#include <string.h>

#include <algorithm>

#include "sim/driver.h"
#include "sim/stream_api.h"

namespace baton::sim {
namespace {

CUresult EnqueueAndWait(Lock& lock, Stream* stream, const Work& work) {
  if (stream->capture != nullptr) {
    InvalidateCapture(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  OpPtr op;
  if (CUresult r = Enqueue(lock, stream, work, &op)) return r;
  return WaitFor(lock, op);
}

bool IsPageable(const void* p) {
  return FindAllocation(reinterpret_cast<uintptr_t>(p), 1) == nullptr;
}

enum class Side { kAny, kHost, kDevice };

// All one-dimensional copies. A side that the entry point calls device memory must be known.
CUresult Copy(CUstream handle, void* to, Side to_side, const void* from, Side from_side,
              size_t bytes, bool async) {
  SIM_ENTER(handle);
  if (bytes == 0) return CUDA_SUCCESS;
  const auto known = [bytes](const void* p) {
    return FindAllocation(reinterpret_cast<uintptr_t>(p), bytes) != nullptr;
  };
  if (to == nullptr || from == nullptr || (to_side == Side::kDevice && !known(to)) ||
      (from_side == Side::kDevice && !known(from))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Work work = CopyWork(stream->ctx->dev, to, from, bytes);
  const bool device_only = work.kind == OpKind::kKernel;
  if (!async) {
    // Between device addresses even the plain call returns at once.
    return device_only ? Enqueue(lock, stream, work) : EnqueueAndWait(lock, stream, work);
  }
  if (stream->capture != nullptr || device_only) return Enqueue(lock, stream, work);
  if (IsPageable(to)) return EnqueueAndWait(lock, stream, work);
  if (IsPageable(from)) {
    // Pageable memory is staged before the call returns: the caller may reuse it at once.
    auto staged = std::make_shared<std::vector<unsigned char>>(
        static_cast<const unsigned char*>(from), static_cast<const unsigned char*>(from) + bytes);
    work.effect = [staged, to, bytes] { memcpy(to, staged->data(), bytes); };
  }
  return Enqueue(lock, stream, work);
}

CUresult Set(CUstream handle, CUdeviceptr to, size_t pitch, unsigned int value, size_t element,
             size_t width, size_t height) {
  SIM_ENTER(handle);
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  const size_t row = width * element;
  if (height == 1) pitch = row;
  if (to % element != 0 || pitch < row ||
      FindAllocation(to, pitch * (height - 1) + row) == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* base = static_cast<unsigned char*>(AsPointer(to));
  return Enqueue(
      lock, stream,
      MoveWork(stream->ctx->dev, OpKind::kKernel, row * height, CU_GRAPH_NODE_TYPE_MEMSET, [=] {
        for (size_t y = 0; y < height; ++y) {
          unsigned char* at = base + y * pitch;
          if (element == 1) {
            memset(at, static_cast<int>(value), width);
          } else if (element == 2) {
            std::fill_n(reinterpret_cast<uint16_t*>(at), width, static_cast<uint16_t>(value));
          } else {
            std::fill_n(reinterpret_cast<uint32_t*>(at), width, value);
          }
        }
      }));
}

// One side of a 2D or 3D copy; null where it is an array, which the simulator lacks.
unsigned char* SideOf(CUmemorytype type, const void* host, CUdeviceptr device) {
  if (type == CU_MEMORYTYPE_HOST) return static_cast<unsigned char*>(const_cast<void*>(host));
  if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) {
    return static_cast<unsigned char*>(AsPointer(device));
  }
  return nullptr;
}

struct Box {
  unsigned char *to, *from;
  size_t to_pitch, to_slice, from_pitch, from_slice, width, height, depth;
};

CUresult CopyBox(CUstream handle, const Box& box, bool async) {
  SIM_ENTER(handle);
  if (box.to == nullptr || box.from == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (box.width == 0 || box.height == 0 || box.depth == 0) return CUDA_SUCCESS;
  if (box.height > 1 && (box.to_pitch < box.width || box.from_pitch < box.width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const OpKind engine = CopyEngineFor(box.to, box.from);
  const Work work =
      MoveWork(stream->ctx->dev, engine, box.width * box.height * box.depth,
               CU_GRAPH_NODE_TYPE_MEMCPY, [box] {
                 for (size_t z = 0; z < box.depth; ++z) {
                   for (size_t y = 0; y < box.height; ++y) {
                     memmove(box.to + z * box.to_slice + y * box.to_pitch,
                             box.from + z * box.from_slice + y * box.from_pitch, box.width);
                   }
                 }
               });
  const bool wait =
      engine != OpKind::kKernel &&
      (!async || (stream->capture == nullptr && (IsPageable(box.to) || IsPageable(box.from))));
  return wait ? EnqueueAndWait(lock, stream, work) : Enqueue(lock, stream, work);
}

CUresult Copy2D(CUstream stream, const CUDA_MEMCPY2D* c, bool async) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Box box = {};
  box.to = SideOf(c->dstMemoryType, c->dstHost, c->dstDevice);
  box.from = SideOf(c->srcMemoryType, c->srcHost, c->srcDevice);
  box.to_pitch = c->dstPitch;
  box.from_pitch = c->srcPitch;
  if (box.to != nullptr) box.to += c->dstY * c->dstPitch + c->dstXInBytes;
  if (box.from != nullptr) box.from += c->srcY * c->srcPitch + c->srcXInBytes;
  box.width = c->WidthInBytes;
  box.height = c->Height;
  box.depth = 1;
  return CopyBox(stream, box, async);
}

template <class Copy3DParams>
CUresult Copy3D(CUstream stream, const Copy3DParams* c, bool async) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Box box = {};
  box.to = SideOf(c->dstMemoryType, c->dstHost, c->dstDevice);
  box.from = SideOf(c->srcMemoryType, c->srcHost, c->srcDevice);
  box.to_pitch = c->dstPitch;
  box.from_pitch = c->srcPitch;
  box.to_slice = c->dstPitch * c->dstHeight;
  box.from_slice = c->srcPitch * c->srcHeight;
  if (box.to != nullptr) {
    box.to += c->dstZ * box.to_slice + c->dstY * c->dstPitch + c->dstXInBytes;
  }
  if (box.from != nullptr) {
    box.from += c->srcZ * box.from_slice + c->srcY * c->srcPitch + c->srcXInBytes;
  }
  box.width = c->WidthInBytes;
  box.height = c->Height;
  box.depth = c->Depth;
  return CopyBox(stream, box, async);
}

}  // namespace

SIM_STREAM_API(cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) {
  return Copy(nullptr, AsPointer(to), Side::kAny, AsPointer(from), Side::kAny, bytes, false);
}
SIM_STREAM_API(cuMemcpyAsync, _ptsz,
               (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) {
  return Copy(stream, AsPointer(to), Side::kAny, AsPointer(from), Side::kAny, bytes, true);
}
SIM_STREAM_API(cuMemcpyPeer, _ptds,
               (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes)) {
  return Copy(nullptr, AsPointer(to), Side::kDevice, AsPointer(from), Side::kDevice, bytes, false);
}
SIM_STREAM_API(cuMemcpyPeerAsync, _ptsz,
               (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes,
                CUstream stream)) {
  return Copy(stream, AsPointer(to), Side::kDevice, AsPointer(from), Side::kDevice, bytes, true);
}
SIM_STREAM_API(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void* from, size_t bytes)) {
  return Copy(nullptr, AsPointer(to), Side::kDevice, from, Side::kHost, bytes, false);
}
SIM_STREAM_API(cuMemcpyDtoH_v2, _ptds, (void* to, CUdeviceptr from, size_t bytes)) {
  return Copy(nullptr, to, Side::kHost, AsPointer(from), Side::kDevice, bytes, false);
}
SIM_STREAM_API(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes)) {
  return Copy(nullptr, AsPointer(to), Side::kDevice, AsPointer(from), Side::kDevice, bytes, false);
}
SIM_STREAM_API(cuMemcpyHtoDAsync_v2, _ptsz,
               (CUdeviceptr to, const void* from, size_t bytes, CUstream stream)) {
  return Copy(stream, AsPointer(to), Side::kDevice, from, Side::kHost, bytes, true);
}
SIM_STREAM_API(cuMemcpyDtoHAsync_v2, _ptsz,
               (void* to, CUdeviceptr from, size_t bytes, CUstream stream)) {
  return Copy(stream, to, Side::kHost, AsPointer(from), Side::kDevice, bytes, true);
}
SIM_STREAM_API(cuMemcpyDtoDAsync_v2, _ptsz,
               (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) {
  return Copy(stream, AsPointer(to), Side::kDevice, AsPointer(from), Side::kDevice, bytes, true);
}
SIM_STREAM_API(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D* copy)) {
  return Copy2D(nullptr, copy, false);
}
SIM_STREAM_API(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D* copy)) {
  return Copy2D(nullptr, copy, false);
}
SIM_STREAM_API(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D* copy, CUstream stream)) {
  return Copy2D(stream, copy, true);
}
SIM_STREAM_API(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D* copy)) {
  return Copy3D(nullptr, copy, false);
}
SIM_STREAM_API(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D* copy, CUstream stream)) {
  return Copy3D(stream, copy, true);
}
SIM_STREAM_API(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER* copy)) {
  return Copy3D(nullptr, copy, false);
}
SIM_STREAM_API(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER* copy, CUstream stream)) {
  return Copy3D(stream, copy, true);
}
SIM_STREAM_API(cuMemPrefetchAsync, _ptsz, (CUdeviceptr, size_t, CUdevice, CUstream handle)) {
  SIM_ENTER(handle);
  return CUDA_SUCCESS;
}
SIM_STREAM_API(cuMemPrefetchAsync_v2, _ptsz,
               (CUdeviceptr, size_t, CUmemLocation, unsigned int, CUstream handle)) {
  SIM_ENTER(handle);
  return CUDA_SUCCESS;
}

SIM_STREAM_API(cuMemsetD8_v2, _ptds, (CUdeviceptr to, unsigned char value, size_t n)) {
  return Set(nullptr, to, 0, value, 1, n, 1);
}
SIM_STREAM_API(cuMemsetD16_v2, _ptds, (CUdeviceptr to, unsigned short value, size_t n)) {
  return Set(nullptr, to, 0, value, 2, n, 1);
}
SIM_STREAM_API(cuMemsetD32_v2, _ptds, (CUdeviceptr to, unsigned int value, size_t n)) {
  return Set(nullptr, to, 0, value, 4, n, 1);
}
SIM_STREAM_API(cuMemsetD2D8_v2, _ptds,
               (CUdeviceptr to, size_t pitch, unsigned char value, size_t w, size_t h)) {
  return Set(nullptr, to, pitch, value, 1, w, h);
}
SIM_STREAM_API(cuMemsetD2D16_v2, _ptds,
               (CUdeviceptr to, size_t pitch, unsigned short value, size_t w, size_t h)) {
  return Set(nullptr, to, pitch, value, 2, w, h);
}
SIM_STREAM_API(cuMemsetD2D32_v2, _ptds,
               (CUdeviceptr to, size_t pitch, unsigned int value, size_t w, size_t h)) {
  return Set(nullptr, to, pitch, value, 4, w, h);
}
SIM_STREAM_API(cuMemsetD8Async, _ptsz,
               (CUdeviceptr to, unsigned char value, size_t n, CUstream stream)) {
  return Set(stream, to, 0, value, 1, n, 1);
}
SIM_STREAM_API(cuMemsetD16Async, _ptsz,
               (CUdeviceptr to, unsigned short value, size_t n, CUstream stream)) {
  return Set(stream, to, 0, value, 2, n, 1);
}
SIM_STREAM_API(cuMemsetD32Async, _ptsz,
               (CUdeviceptr to, unsigned int value, size_t n, CUstream stream)) {
  return Set(stream, to, 0, value, 4, n, 1);
}
SIM_STREAM_API(cuMemsetD2D8Async, _ptsz,
               (CUdeviceptr to, size_t pitch, unsigned char value, size_t w, size_t h,
                CUstream stream)) {
  return Set(stream, to, pitch, value, 1, w, h);
}
SIM_STREAM_API(cuMemsetD2D16Async, _ptsz,
               (CUdeviceptr to, size_t pitch, unsigned short value, size_t w, size_t h,
                CUstream stream)) {
  return Set(stream, to, pitch, value, 2, w, h);
}
SIM_STREAM_API(cuMemsetD2D32Async, _ptsz,
               (CUdeviceptr to, size_t pitch, unsigned int value, size_t w, size_t h,
                CUstream stream)) {
  return Set(stream, to, pitch, value, 4, w, h);
}

SIM_STREAM_API(cuMemAllocAsync, _ptsz, (CUdeviceptr * out, size_t bytes, CUstream handle)) {
  SIM_ENTER(handle);
  return AllocateFromPool(lock, stream, stream->ctx->dev->pool, bytes, out);
}
SIM_STREAM_API(cuMemAllocFromPoolAsync, _ptsz,
               (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream handle)) {
  SIM_ENTER(handle);
  return AllocateFromPool(lock, stream, reinterpret_cast<Pool*>(pool), bytes, out);
}
SIM_STREAM_API(cuMemFreeAsync, _ptsz, (CUdeviceptr pointer, CUstream handle)) {
  SIM_ENTER(handle);
  return FreeToPool(lock, stream, pointer);
}

}  // namespace baton::sim
