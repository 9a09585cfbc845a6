// The shapes of programs that `scripts/bench shapes` measures: what each does, as flags of
// baton-burn. A new shape is a new row.
#ifndef BATON_BENCH_SHAPES_H_
#define BATON_BENCH_SHAPES_H_

namespace baton::bench {

// What may be asked of a shape depends on when it waits.
enum class Pace {
  kAhead,   // queues ahead, and so can fill the GPU
  kWaits,   // after each burst
  kInStep,  // after each launch
  kPauses,  // has nothing to do for a while, so that it may want less than half of the GPU
};

struct Shape {
  const char* name;
  const char* flags;  // of baton-burn, between spaces
  Pace pace = Pace::kAhead;
  double longer = 1;  // its windows are so many times as long as the others'
};

inline constexpr Shape kShapes[] = {
    // One stream; the program is a few launches ahead of the GPU.
    {"kernels of 2 us", "--kernel 2us --sync 128"},
    {"kernels of 5 us", "--kernel 5us --sync 128"},
    {"kernels of 10 us", "--kernel 10us --sync 128"},
    {"kernels of 20 us", "--kernel 20us --sync 64"},
    {"kernels of 50 us", "--kernel 50us --sync 32"},
    {"kernels of 100 us", "--kernel 100us --sync 16"},
    {"kernels of 200 us", "--kernel 200us"},
    {"kernels of 500 us", "--kernel 500us"},
    {"kernels of 1 ms", "--kernel 1ms"},
    {"kernels of 2 ms", "--kernel 2ms"},
    {"kernels of 5 ms", "--kernel 5ms --sync 4"},
    {"kernels of 10 ms", "--kernel 10ms --sync 4"},
    {"kernels of 20 ms", "--kernel 20ms --sync 3", Pace::kAhead, 1.5},
    {"kernels of 50 ms", "--kernel 50ms --sync 2", Pace::kAhead, 2},
    {"kernels of 100 ms", "--kernel 100ms --sync 2", Pace::kAhead, 2.5},
    {"kernels of 200 ms", "--kernel 200ms --sync 2", Pace::kAhead, 4},
    {"a deep queue, 200 us", "--kernel 200us --sync 1024"},
    {"a deep queue, 20 us", "--kernel 20us --sync 1024"},
    {"kernels of 1 ms, ± 90 %", "--kernel 1ms --spread 0.9"},
    {"long and short, mean 500 us",
     "--kernel 500us --spread 1.5 --spread-shape lognormal --sync 16"},

    // Several streams.
    {"2 streams, 20 us", "--kernel 20us --streams 2 --sync 64"},
    {"4 streams, 20 us", "--kernel 20us --streams 4 --sync 64"},
    {"8 streams, 20 us", "--kernel 20us --streams 8 --sync 64"},
    {"16 streams, 20 us", "--kernel 20us --streams 16 --sync 128"},
    {"32 streams, 20 us", "--kernel 20us --streams 32 --sync 256"},
    {"64 streams, 20 us", "--kernel 20us --streams 64 --sync 256"},
    {"8 streams, 5 us", "--kernel 5us --streams 8 --sync 128"},
    {"4 streams, 200 us", "--kernel 200us --streams 4"},
    {"16 streams, 200 us", "--kernel 200us --streams 16 --sync 32"},
    {"64 streams, 200 us", "--kernel 200us --streams 64 --sync 128"},
    {"8 streams, 1 ms", "--kernel 1ms --streams 8 --sync 16"},
    {"64 streams, 1 ms", "--kernel 1ms --streams 64 --sync 64"},
    {"4 streams, 10 ms", "--kernel 10ms --streams 4 --sync 4"},
    {"the default stream, 200 us", "--kernel 200us --streams 0"},

    // A wait after each launch.
    // Without Baton too, how fast it is depends on where the kernel puts its threads at the moment.
    {"in step, 20 us", "--kernel 20us --sync launch", Pace::kInStep, 6},
    {"in step, 100 us", "--kernel 100us --sync launch", Pace::kInStep},
    {"in step, 200 us", "--kernel 200us --sync launch", Pace::kInStep},
    {"in step, 1 ms", "--kernel 1ms --sync launch", Pace::kInStep},
    {"in step, 5 ms", "--kernel 5ms --sync launch", Pace::kInStep},
    {"in step, 20 ms", "--kernel 20ms --sync launch", Pace::kInStep, 1.5},
    {"in step by events, 200 us", "--kernel 200us --sync launch --sync-by event", Pace::kInStep},
    {"in step by context, 200 us", "--kernel 200us --sync launch --sync-by ctx", Pace::kInStep},
    {"in step, spinning, 200 us", "--kernel 200us --sync launch --spin", Pace::kInStep},

    // A wait after every N launches.
    {"a wait per 10 of 20 us", "--kernel 20us --burst 10 --sync burst", Pace::kWaits},
    {"a wait per 100 of 20 us", "--kernel 20us --burst 100 --sync burst", Pace::kWaits},
    {"a wait per 10 of 200 us", "--kernel 200us --burst 10 --sync burst", Pace::kWaits},
    {"a wait per 100 of 200 us", "--kernel 200us --burst 100 --sync burst", Pace::kWaits},
    {"a wait per 4 of 1 ms", "--kernel 1ms --burst 4 --sync burst", Pace::kWaits},
    {"a wait per 32 of 1 ms", "--kernel 1ms --burst 32 --sync burst", Pace::kWaits},
    {"a wait per 5 of 10 ms", "--kernel 10ms --burst 5 --sync burst", Pace::kWaits, 1.5},
    {"a wait per 64 in 16 streams, 50 us", "--kernel 50us --streams 16 --burst 64 --sync burst",
     Pace::kWaits},

    // Graphs.
    {"graphs of 10 of 20 us", "--kernel 20us --graph 10"},
    {"graphs of 100 of 20 us", "--kernel 20us --graph 100 --sync 4"},
    {"graphs of 20 of 200 us", "--kernel 200us --graph 20 --sync 4"},
    {"graphs of 100 of 200 us", "--kernel 200us --graph 100 --sync 2", Pace::kAhead, 1.5},
    {"graphs of 20 of 1 ms", "--kernel 1ms --graph 20 --sync 2", Pace::kAhead, 1.5},
    {"graphs in 8 streams, 10 of 50 us", "--kernel 50us --graph 10 --streams 8"},
    {"a wait per graph of 20 of 200 us", "--kernel 200us --graph 20 --burst 1 --sync burst",
     Pace::kWaits},

    // Copies to the device before each burst.
    {"64 KiB copied per 10 of 100 us", "--kernel 100us --copy 64KiB --sync 32"},
    {"1 MiB copied per 10 of 200 us", "--kernel 200us --copy 1MiB --sync 16"},
    {"16 MiB copied per 10 of 1 ms", "--kernel 1ms --copy 16MiB"},
    {"1 MiB copied, then 10 of 200 us and a wait",
     "--kernel 200us --copy 1MiB --burst 10 --sync burst", Pace::kWaits},

    // Several threads, and several processes.
    {"2 threads, 200 us", "--kernel 200us --threads 2"},
    {"4 threads, 100 us", "--kernel 100us --threads 4"},
    {"8 threads, 1 ms", "--kernel 1ms --threads 8 --sync 2"},
    {"4 threads of 4 streams, 100 us", "--kernel 100us --threads 4 --streams 4"},
    {"4 threads, own default streams, 200 us", "--kernel 200us --threads 4 --per-thread"},
    {"4 threads in step, 200 us", "--kernel 200us --threads 4 --sync launch", Pace::kInStep},
    {"2 processes, 200 us", "--kernel 200us --processes 2"},
    {"4 processes, 1 ms", "--kernel 1ms --processes 4 --sync 4"},
    {"2 processes of 2 threads, 500 us", "--kernel 500us --processes 2 --threads 2 --sync 4"},

    // Pauses after each burst.
    {"20 of 200 us, pauses of 2 ms", "--kernel 200us --burst 20 --sync burst --pause 2ms",
     Pace::kPauses},
    {"2 of 1 ms, pauses of 1 ms", "--kernel 1ms --burst 2 --sync burst --pause 1ms", Pace::kPauses},
    {"5 of 1 ms, pauses of 5 ms", "--kernel 1ms --burst 5 --sync burst --pause 5ms", Pace::kPauses},
    {"10 of 1 ms, pauses of 20 ms", "--kernel 1ms --burst 10 --sync burst --pause 20ms",
     Pace::kPauses},
    {"100 of 1 ms, pauses of 50 ms", "--kernel 1ms --burst 100 --sync burst --pause 50ms",
     Pace::kPauses, 2},
};

}  // namespace baton::bench

#endif  // BATON_BENCH_SHAPES_H_
