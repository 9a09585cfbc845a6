// Libraries that are opened with RTLD_DEEPBIND look for symbols among their own dependencies first,
// and so past the hook: they call the driver, or the C library's dlsym, directly. For those that
// reach CUDA the flag is taken away; others keep it.
#ifndef BATON_HOOK_DEEPBIND_H_
#define BATON_HOOK_DEEPBIND_H_

namespace baton::hook {

// Whether the library that dlopen(file) finds for a caller at this address, or one that it needs,
// is NVIDIA's driver or names it. False where no such file is found. Thread safe.
bool ReachesCuda(const char* file, const void* caller);

}  // namespace baton::hook

#endif  // BATON_HOOK_DEEPBIND_H_
