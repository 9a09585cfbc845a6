// The _ptsz and _ptds names: the same files again, with the calling thread's own default stream.
#define BATON_SIM_PER_THREAD
#include "sim/api_copy.cc"    // NOLINT(bugprone-suspicious-include)
#include "sim/api_stream.cc"  // NOLINT(bugprone-suspicious-include)
