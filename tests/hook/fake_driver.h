// What a test may ask of the hook's own tests' driver, beside the driver API.
#ifndef BATON_TESTS_HOOK_FAKE_DRIVER_H_
#define BATON_TESTS_HOOK_FAKE_DRIVER_H_

#include <cstddef>
#include <cstdint>

#include "hook/cuda_types.h"

extern "C" {
CUfunction fake_kernel(int64_t ns);  // 0: one of no end
uint64_t fake_launches();
uint64_t fake_records();
uint64_t fake_allocations();
// The most that any stream had left to do just after a launch, in nanoseconds, since the last such
// question.
int64_t fake_most_queued();
void fake_release();
int fake_waits();  // for the host, that are not over
// Begin and end of the `i`th kernel; false: there are not so many.
bool fake_kernel_ran(size_t i, int64_t* begin, int64_t* end);
void fake_no_op(bool on);
void fake_full_channel(bool on);          // a record behind a wait for the host waits for its end
void fake_query_errors(int n, int code);  // the next `n` queries answer that
void fake_record_errors(int n);           // the next `n` records fail for want of memory
void fake_stretch(int64_t ns);     // the next kernel takes this long, whatever it took before
void fake_come_late(int64_t ns);   // the GPU begins so late with what it is given next
void fake_hold_destroys(bool on);  // a call that destroys something does so and does not return
uint64_t fake_mistakes();          // calls with what is gone
void* fake_green();
CUgraph fake_graph(int64_t ns, int64_t device_ns);
void fake_defer_frees(bool on);
}

#endif  // BATON_TESTS_HOOK_FAKE_DRIVER_H_
