// Calls that make the GPU wait for the host: hook/host_waits.h.
#include "hook/entries.h"
#include "hook/host_waits.h"
#include "hook/mover.h"

namespace baton::hook {

#define BATON_HOST_FUNCTION(name, stream_of)                           \
  BATON_API(name, (CUstream stream, CUhostFn function, void* user)) {  \
    BATON_REAL(name);                                                  \
    const BegunWait begun = BeginHostWait(stream_of(stream));          \
    if (begun.wait == nullptr) return real(stream, function, user);    \
    begun.wait->function = function;                                   \
    begun.wait->user = user;                                           \
    const CUresult result = real(stream, RunHostFunction, begun.wait); \
    EndBegin(begun, result == CUDA_SUCCESS);                           \
    return result;                                                     \
  }
BATON_HOST_FUNCTION(cuLaunchHostFunc, Legacy)
BATON_HOST_FUNCTION(cuLaunchHostFunc_ptsz, PerThread)

#define BATON_CALLBACK(name, stream_of)                                                       \
  BATON_API(name, (CUstream stream, CUstreamCallback callback, void* user, unsigned flags)) { \
    BATON_REAL(name);                                                                         \
    if (callback == nullptr) return real(stream, callback, user, flags);                      \
    const BegunWait begun = BeginHostWait(stream_of(stream));                                 \
    if (begun.wait == nullptr) return real(stream, callback, user, flags);                    \
    begun.wait->callback = callback;                                                          \
    begun.wait->user = user;                                                                  \
    const CUresult result = real(stream, RunCallback, begun.wait, flags);                     \
    EndBegin(begun, result == CUDA_SUCCESS);                                                  \
    return result;                                                                            \
  }
BATON_CALLBACK(cuStreamAddCallback, Legacy)
BATON_CALLBACK(cuStreamAddCallback_ptsz, PerThread)

namespace {

// The host may write the value without a call of the driver, so what follows is held by a function
// behind the wait.
template <class Call>
CUresult WaitForValue(CUstream stream, Call call) {
  auto* host_function = RealAs<CUresult(CUstream, CUhostFn, void*)>(Fn::cuLaunchHostFunc);
  if (host_function == nullptr) return call();
  const BegunWait begun = BeginHostWait(stream);
  const CUresult result = call();
  EndBegin(begun, begun.wait != nullptr && result == CUDA_SUCCESS &&
                      host_function(stream, RunHostFunction, begun.wait) == CUDA_SUCCESS);
  return result;
}

bool HasWait(const CUstreamBatchMemOpParams* ops, unsigned count) {
  for (unsigned i = 0; ops != nullptr && i < count; ++i) {
    if (ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
        ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
      return true;
    }
  }
  return false;
}

// All of them have their address at the same place.
bool RefusesAny(const CUstreamBatchMemOpParams* ops, unsigned count) {
  for (unsigned i = 0; Swaps() && ops != nullptr && i < count; ++i) {
    const auto operation = ops[i].operation;
    const bool has_address = operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                             operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                             operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                             operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    if (has_address && RefusesMovable(ops[i].waitValue.address, "cuStreamBatchMemOp")) return true;
  }
  return false;
}

}  // namespace

#define BATON_WAIT_VALUE(name, Value, stream_of)                                                 \
  BATON_API(name, (CUstream stream, CUdeviceptr address, Value value, unsigned flags)) {         \
    BATON_REAL(name);                                                                            \
    if (RefusesMovable(address, #name)) return CUDA_ERROR_NOT_SUPPORTED;                         \
    return WaitForValue(stream_of(stream), [&] { return real(stream, address, value, flags); }); \
  }
BATON_WAIT_VALUE(cuStreamWaitValue32, cuuint32_t, Legacy)
BATON_WAIT_VALUE(cuStreamWaitValue32_ptsz, cuuint32_t, PerThread)
BATON_WAIT_VALUE(cuStreamWaitValue32_v2, cuuint32_t, Legacy)
BATON_WAIT_VALUE(cuStreamWaitValue32_v2_ptsz, cuuint32_t, PerThread)
BATON_WAIT_VALUE(cuStreamWaitValue64, cuuint64_t, Legacy)
BATON_WAIT_VALUE(cuStreamWaitValue64_ptsz, cuuint64_t, PerThread)
BATON_WAIT_VALUE(cuStreamWaitValue64_v2, cuuint64_t, Legacy)
BATON_WAIT_VALUE(cuStreamWaitValue64_v2_ptsz, cuuint64_t, PerThread)

#define BATON_BATCH_MEM_OP(name, stream_of)                                                     \
  BATON_API(name,                                                                               \
            (CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags)) { \
    BATON_REAL(name);                                                                           \
    if (RefusesAny(ops, count)) return CUDA_ERROR_NOT_SUPPORTED;                                \
    if (!HasWait(ops, count)) return real(stream, count, ops, flags);                           \
    return WaitForValue(stream_of(stream), [&] { return real(stream, count, ops, flags); });    \
  }
BATON_BATCH_MEM_OP(cuStreamBatchMemOp, Legacy)
BATON_BATCH_MEM_OP(cuStreamBatchMemOp_ptsz, PerThread)
BATON_BATCH_MEM_OP(cuStreamBatchMemOp_v2, Legacy)
BATON_BATCH_MEM_OP(cuStreamBatchMemOp_v2_ptsz, PerThread)

}  // namespace baton::hook
