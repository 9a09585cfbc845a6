// Libraries that a program opens with RTLD_DEEPBIND. Compiled three times: PLUGIN_CUDA calls the
// driver; PLUGIN_OUTER needs that one; and without either it has nothing to do with CUDA.
#include <cstdint>

#include "hook/cuda_types.h"

extern "C" {
// The program has one of this name too: which is called shows how the library was opened.
__attribute__((visibility("default"))) const char* plugin_whose() { return "library"; }

#if defined(PLUGIN_CUDA)
CUfunction fake_kernel(int64_t ns);
__attribute__((visibility("default"))) int plugin_inner_launch(int64_t ns) {
  return cuLaunchKernel(fake_kernel(ns), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
}
#elif defined(PLUGIN_OUTER)
int plugin_inner_launch(int64_t ns);
__attribute__((visibility("default"))) int plugin_launch(int64_t ns) {
  return plugin_inner_launch(ns);
}
#else
__attribute__((visibility("default"))) const char* plugin_asks() { return plugin_whose(); }
#endif
}
