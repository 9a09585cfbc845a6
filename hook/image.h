// How much memory of the device the variables of a module take (`__device__`, `__managed__`), read
// from the module's image before the driver loads it.
#ifndef BATON_HOOK_IMAGE_H_
#define BATON_HOOK_IMAGE_H_

#include <stdint.h>

namespace baton::hook {

// Bytes of the variables in global memory, of an image as cuModuleLoadData takes it: PTX, a cubin,
// a fat binary, or what nvcc puts around one. Of a fat binary, the most that any of its parts says;
// what comes after 64 MiB of text or of packed parts is left out. 0 for what this does not know.
// `image` is as long as it says itself, as for the driver. Thread safe.
uint64_t VariableBytes(const void* image);
// The same of one that ends after `size` bytes, whatever it says; and of a file.
uint64_t VariableBytes(const char* image, uint64_t size);
uint64_t VariableBytesOfFile(const char* path);

}  // namespace baton::hook

#endif  // BATON_HOOK_IMAGE_H_
