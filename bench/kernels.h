// The kernels that the workload program and the driver's conformance suite launch, as one PTX text
// that a real driver compiles and that the simulated one (sim/) loads by its `//@baton-sim` lines.
// sim/README.md defines those lines.
//
//   baton_spin(u64 ns)                       every thread spins for `ns` of %globaltimer
//   baton_spin_store(u64 ns, u32* p, u32 v)  spins, then *p = v
//   baton_spin_wait(u32* p, u32 v)           spins until *p >= v (unsigned)
//   baton_add(u32* p, u32 n, u32 v)          p[i] += v for i < n, whatever the launch's shape
//   baton_fault()                            stores to an illegal address
#ifndef BATON_BENCH_KERNELS_H_
#define BATON_BENCH_KERNELS_H_

namespace baton::bench {

inline constexpr char kKernelsPtx[] = R"ptx(//@baton-sim kernel baton_spin(u64) duration=arg0
//@baton-sim kernel baton_spin_store(u64,ptr,u32) duration=arg0 concurrent store=arg1:arg2
//@baton-sim kernel baton_spin_wait(ptr,u32) duration=1us concurrent wait=arg0:arg1
//@baton-sim kernel baton_add(ptr,u32,u32) duration=2us add=arg0:arg1:arg2
//@baton-sim kernel baton_fault() duration=2us fault
.version 6.4
.target sm_50
.address_size 64

.visible .entry baton_spin(.param .u64 ns)
{
  .reg .pred %p1;
  .reg .u64 %rd<5>;
  ld.param.u64 %rd1, [ns];
  mov.u64 %rd2, %globaltimer;
SPIN:
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra SPIN;
  ret;
}

.visible .entry baton_spin_store(.param .u64 ns, .param .u64 p, .param .u32 v)
{
  .reg .pred %p<3>;
  .reg .u32 %r<5>;
  .reg .u64 %rd<7>;
  ld.param.u64 %rd1, [ns];
  mov.u64 %rd2, %globaltimer;
SPIN_STORE:
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra SPIN_STORE;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  or.b32 %r3, %r1, %r2;
  setp.ne.u32 %p2, %r3, 0;
  @%p2 bra STORED;
  ld.param.u64 %rd5, [p];
  cvta.to.global.u64 %rd6, %rd5;
  ld.param.u32 %r4, [v];
  st.volatile.global.u32 [%rd6], %r4;
  membar.sys;
STORED:
  ret;
}

.visible .entry baton_spin_wait(.param .u64 p, .param .u32 v)
{
  .reg .pred %p1;
  .reg .u32 %r<3>;
  .reg .u64 %rd<3>;
  ld.param.u64 %rd1, [p];
  cvta.to.global.u64 %rd2, %rd1;
  ld.param.u32 %r1, [v];
WAIT:
  ld.volatile.global.u32 %r2, [%rd2];
  setp.lt.u32 %p1, %r2, %r1;
  @%p1 bra WAIT;
  ret;
}

.visible .entry baton_add(.param .u64 p, .param .u32 n, .param .u32 v)
{
  .reg .pred %p<3>;
  .reg .u32 %r<10>;
  .reg .u64 %rd<5>;
  ld.param.u64 %rd1, [p];
  cvta.to.global.u64 %rd2, %rd1;
  ld.param.u32 %r1, [n];
  ld.param.u32 %r2, [v];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mov.u32 %r6, %nctaid.x;
  mad.lo.u32 %r7, %r3, %r4, %r5;
  mul.lo.u32 %r8, %r4, %r6;
ADD:
  setp.ge.u32 %p1, %r7, %r1;
  @%p1 bra ADDED;
  mul.wide.u32 %rd3, %r7, 4;
  add.u64 %rd4, %rd2, %rd3;
  ld.global.u32 %r9, [%rd4];
  add.u32 %r9, %r9, %r2;
  st.global.u32 [%rd4], %r9;
  add.u32 %r7, %r7, %r8;
  bra ADD;
ADDED:
  ret;
}

.visible .entry baton_fault()
{
  .reg .u32 %r1;
  .reg .u64 %rd1;
  mov.u64 %rd1, 16;
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
)ptx";

}  // namespace baton::bench

#endif  // BATON_BENCH_KERNELS_H_
