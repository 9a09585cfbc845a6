// Arrays and mipmapped arrays: memory that is described, charged and destroyed. Nothing copies into
// one, and no kernel reads one.
#include <algorithm>

#include "sim/driver.h"
#include "sim/memory.h"

namespace baton::sim {
namespace {

struct Array {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  Ctx* ctx = nullptr;
  size_t charged = 0;            // a level has none of its own
  std::vector<Array*> levels{};  // of a mipmapped one
};

// What the first generation is told: sizes of 32 bits.
struct Shape2Dv1 {
  unsigned int width, height;
  CUarray_format format;
  unsigned int channels;
};
struct Shape3Dv1 {
  unsigned int width, height, depth;
  CUarray_format format;
  unsigned int channels, flags;
};

size_t ChannelBytes(CUarray_format format) {
  switch (static_cast<int>(format)) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

// Block-linear, as on a card: tiles of 64 bytes by 8 rows.
size_t BytesOf(const CUDA_ARRAY3D_DESCRIPTOR& s) {
  const size_t row = RoundUp(s.Width * s.NumChannels * ChannelBytes(s.Format), 64);
  const size_t rows = s.Height == 0 ? 1 : RoundUp(s.Height, 8);
  return row * rows * std::max<size_t>(s.Depth, 1);
}

bool Valid(const CUDA_ARRAY3D_DESCRIPTOR& s) {
  return s.Width > 0 && ChannelBytes(s.Format) > 0 &&
         (s.NumChannels == 1 || s.NumChannels == 2 || s.NumChannels == 4);
}

CUresult Make(Array** out, const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned int levels) {
  Lock lock(TheDriver().mutex);
  Ctx* ctx;
  if (CUresult r = CurrentContext(&ctx)) return r;
  if (out == nullptr || !Valid(shape)) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult r = CheckUnsafe()) return r;
  auto array = std::make_unique<Array>();
  array->shape = shape;
  array->ctx = ctx;
  size_t bytes = 0;
  CUDA_ARRAY3D_DESCRIPTOR level = shape;
  for (unsigned int i = 0; i < std::max(levels, 1u); ++i) {
    bytes += BytesOf(level);
    if (levels > 0) array->levels.push_back(new Array{level, ctx});
    level.Width = std::max<size_t>(level.Width / 2, 1);
    if (level.Height > 0) level.Height = std::max<size_t>(level.Height / 2, 1);
    const bool layered = (shape.Flags & CUDA_ARRAY3D_LAYERED) != 0;
    if (level.Depth > 0 && !layered) level.Depth = std::max<size_t>(level.Depth / 2, 1);
  }
  bytes = RoundUp(bytes, kPage);
  if (!Charge(ctx->dev, bytes)) {
    for (Array* each : array->levels) delete each;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  array->charged = bytes;
  for (Array* each : array->levels) TheDriver().live.insert(each);
  *out = array.release();
  TheDriver().live.insert(*out);
  (*out)->ctx->arrays.insert(*out);
  return CUDA_SUCCESS;
}

void Forget(Array* array) {
  for (Array* level : array->levels) {
    TheDriver().live.erase(level);
    delete level;
  }
  TheDriver().live.erase(array);
  Uncharge(array->ctx->dev, array->charged);
  delete array;
}

CUresult Destroy(void* handle, bool mipmapped) {
  Lock lock(TheDriver().mutex);
  auto* array = static_cast<Array*>(handle);
  if (!IsLive(array) || array->charged == 0 || array->levels.empty() == mipmapped) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (CUresult r = CheckUnsafe()) return r;
  if (CUresult r = WaitForContext(lock, array->ctx)) return r;
  if (!IsLive(array)) return CUDA_ERROR_INVALID_HANDLE;
  array->ctx->arrays.erase(array);
  Forget(array);
  return CUDA_SUCCESS;
}

CUresult GetArray(CUarray handle, Array** array) {
  *array = reinterpret_cast<Array*>(handle);
  return IsLive(*array) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult MakeFlat(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  return Make(reinterpret_cast<Array**>(out), shape, 0);
}

}  // namespace

void ReleaseContextArrays(Ctx* ctx) {
  for (void* array : ctx->arrays) Forget(static_cast<Array*>(array));
  ctx->arrays.clear();
}

SIM_API(cuArrayCreate_v2, (CUarray * out, const CUDA_ARRAY_DESCRIPTOR* s)) {
  if (s == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return MakeFlat(out, {s->Width, s->Height, 0, s->Format, s->NumChannels, 0});
}
SIM_API(cuArrayCreate, (CUarray * out, const Shape2Dv1* s)) {
  if (s == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return MakeFlat(out, {s->width, s->height, 0, s->format, s->channels, 0});
}
SIM_API(cuArray3DCreate_v2, (CUarray * out, const CUDA_ARRAY3D_DESCRIPTOR* s)) {
  return s == nullptr ? CUDA_ERROR_INVALID_VALUE : MakeFlat(out, *s);
}
SIM_API(cuArray3DCreate, (CUarray * out, const Shape3Dv1* s)) {
  if (s == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return MakeFlat(out, {s->width, s->height, s->depth, s->format, s->channels, s->flags});
}
SIM_API(cuArrayDestroy, (CUarray array)) { return Destroy(array, false); }

SIM_API(cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR * s, CUarray handle)) {
  Lock lock(TheDriver().mutex);
  Array* array;
  if (CUresult r = GetArray(handle, &array)) return r;
  if (s == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *s = array->shape;
  return CUDA_SUCCESS;
}
SIM_API(cuArrayGetDescriptor_v2, (CUDA_ARRAY_DESCRIPTOR * s, CUarray handle)) {
  Lock lock(TheDriver().mutex);
  Array* array;
  if (CUresult r = GetArray(handle, &array)) return r;
  if (s == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *s = {array->shape.Width, array->shape.Height, array->shape.Format, array->shape.NumChannels};
  return CUDA_SUCCESS;
}

SIM_API(cuMipmappedArrayCreate,
        (CUmipmappedArray * out, const CUDA_ARRAY3D_DESCRIPTOR* s, unsigned int levels)) {
  if (s == nullptr || levels == 0) return CUDA_ERROR_INVALID_VALUE;
  return Make(reinterpret_cast<Array**>(out), *s, std::min(levels, 16u));
}
SIM_API(cuMipmappedArrayDestroy, (CUmipmappedArray array)) { return Destroy(array, true); }
SIM_API(cuMipmappedArrayGetLevel, (CUarray * out, CUmipmappedArray handle, unsigned int level)) {
  Lock lock(TheDriver().mutex);
  auto* array = reinterpret_cast<Array*>(handle);
  if (!IsLive(array)) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || level >= array->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUarray>(array->levels[level]);
  return CUDA_SUCCESS;
}

}  // namespace baton::sim
