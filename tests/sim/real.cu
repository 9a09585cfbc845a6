// What real images are made of in tests: compiled where there is an nvcc.
__device__ char big[1 << 20];
__constant__ int table[4];

struct Wide {
  char c[20];
};

template <class T>
__global__ void Add(T* to, Wide wide, unsigned n) {
  to[n] += static_cast<T>(wide.c[0]);
}
template __global__ void Add<float>(float*, Wide, unsigned);

extern "C" __global__ void plain() { big[threadIdx.x] = static_cast<char>(table[0]); }
