// Calls that wait for the GPU. In them the driver takes back what its pools do not use, and nobody
// else tells this process so.
#include "hook/entries.h"
#include "hook/memory.h"

namespace baton::hook {
namespace {

CUresult Synchronized(CUresult result) {
  if (result == CUDA_SUCCESS) PoolsMayHaveShrunk();
  return result;
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
  return Synchronized(real());
}
BATON_API(cuCtxSynchronize_v2, (CUcontext context)) {
  BATON_REAL(cuCtxSynchronize_v2);
  return Synchronized(real(context));
}

}  // namespace baton::hook
