// Calls that wait for the GPU. In them the driver takes back what its pools do not use, and nobody
// else tells this process so.
#include "hook/entries.h"
#include "hook/memory.h"
#include "hook/mover.h"

namespace baton::hook {
namespace {

CUresult Synchronized(CUresult result) {
  if (result == CUDA_SUCCESS) PoolsMayHaveShrunk();
  return result;
}

CUresult ContextSynchronized(CUresult result) {
  if (result == CUDA_SUCCESS) FreePutOff();
  return Synchronized(result);
}

}  // namespace

BATON_API(cuStreamSynchronize, (CUstream stream)) {
  BATON_REAL(cuStreamSynchronize);
  return Synchronized(real(stream));
}
BATON_API(cuStreamSynchronize_ptsz, (CUstream stream)) {
  BATON_REAL(cuStreamSynchronize_ptsz);
  return Synchronized(real(stream));
}
BATON_API(cuEventSynchronize, (CUevent event)) {
  BATON_REAL(cuEventSynchronize);
  return Synchronized(real(event));
}
BATON_API(cuCtxSynchronize, ()) {
  BATON_REAL(cuCtxSynchronize);
  return ContextSynchronized(real());
}
BATON_API(cuCtxSynchronize_v2, (CUcontext context)) {
  BATON_REAL(cuCtxSynchronize_v2);
  return ContextSynchronized(real(context));
}

}  // namespace baton::hook
