// The driver under test, as the loader finds it, and what the cases share. Only documented
// behaviour is asked for, so that the same program judges the simulator, real drivers, and either
// of them with the hook before it.
#ifndef BATON_TESTS_DRIVER_CONFORMANCE_DRIVER_H_
#define BATON_TESTS_DRIVER_CONFORMANCE_DRIVER_H_

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace baton::conformance {

// The symbol's address by dlsym, or null.
void* FindSymbol(const char* name);
// Ends the test program with a message when it is not there.
void* NeedSymbol(const char* name);
// "CUDA_ERROR_..." for messages.
const char* ErrorName(CUresult result);
// cuCtxCreate_v2, whatever the header's cuCtxCreate is.
CUresult CreateContext(CUcontext* context, CUdevice device);

#define BATON_STRING_(x) #x
#define BATON_STRING(x) BATON_STRING_(x)
// DRV(cuMemAlloc)(&p, n): the function that cuda.h means by this name, from the driver under test.
#define DRV(name)                                                                     \
  (reinterpret_cast<decltype(&::name)>([] {                                           \
    static void* const symbol = ::baton::conformance::NeedSymbol(BATON_STRING(name)); \
    return symbol;                                                                    \
  }()))
// The same type under another exported name.
#define DRV_AS(name, exported)                                              \
  (reinterpret_cast<decltype(&::name)>([] {                                 \
    static void* const symbol = ::baton::conformance::NeedSymbol(exported); \
    return symbol;                                                          \
  }()))

#define EXPECT_OK(call) EXPECT_STREQ("CUDA_SUCCESS", ::baton::conformance::ErrorName(call)) << #call
#define ASSERT_OK(call) ASSERT_STREQ("CUDA_SUCCESS", ::baton::conformance::ErrorName(call)) << #call
#define EXPECT_ERROR(error, call) \
  EXPECT_STREQ(#error, ::baton::conformance::ErrorName(call)) << #call
// Where the documentation leaves a choice.
#define EXPECT_EITHER(one, other, call)                               \
  do {                                                                \
    const CUresult result_ = (call);                                  \
    EXPECT_TRUE(result_ == one || result_ == other)                   \
        << #call << ": " << ::baton::conformance::ErrorName(result_); \
  } while (false)

// Device 0's primary context, current, and the shared kernels.
class DriverTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // `ns` of spinning on the stream.
  CUresult Spin(uint64_t ns, CUstream stream);
  // p[i] += v for i < n.
  CUresult Add(CUdeviceptr p, uint32_t n, uint32_t v, CUstream stream);
  CUdeviceptr Alloc(size_t bytes);
  std::vector<uint32_t> Read(CUdeviceptr p, size_t words);
  CUstream NewStream(unsigned int flags = CU_STREAM_NON_BLOCKING);
  CUevent NewEvent(unsigned int flags = CU_EVENT_DEFAULT);

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction spin_ = nullptr, spin_store_ = nullptr, spin_wait_ = nullptr, add_ = nullptr,
             fault_ = nullptr;

 private:
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::vector<CUdeviceptr> memory_;
};

}  // namespace baton::conformance

#endif  // BATON_TESTS_DRIVER_CONFORMANCE_DRIVER_H_
