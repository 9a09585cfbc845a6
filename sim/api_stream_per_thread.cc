// The _ptsz and _ptds names: api_stream.cc again, with the calling thread's own default stream.
#define BATON_SIM_PER_THREAD
#include "sim/api_stream.cc"  // NOLINT(bugprone-suspicious-include)
