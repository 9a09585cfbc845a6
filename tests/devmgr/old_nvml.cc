// A libnvidia-ml.so.1 from long ago: no more than one GPU and its name.
#include <cstring>

extern "C" int nvmlInit() { return 0; }
extern "C" int nvmlDeviceGetCount(unsigned* count) {
  *count = 1;
  return 0;
}
extern "C" int nvmlDeviceGetHandleByIndex(unsigned index, void** device) {
  static int card;
  *device = &card;
  return index == 0 ? 0 : 2;
}
extern "C" int nvmlDeviceGetHandleByUUID(const char*, void** device) {
  return nvmlDeviceGetHandleByIndex(0, device);
}
extern "C" int nvmlDeviceGetUUID(void*, char* uuid, unsigned length) {
  std::strncpy(uuid, "GPU-old", length);
  return 0;
}
extern "C" int nvmlDeviceGetMemoryInfo(void*, unsigned long long* memory) {
  memory[0] = 6ull << 30;
  memory[1] = memory[2] = 0;
  return 0;
}
