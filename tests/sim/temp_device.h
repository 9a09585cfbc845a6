// A device file that goes when the test does.
#ifndef BATON_TESTS_SIM_TEMP_DEVICE_H_
#define BATON_TESTS_SIM_TEMP_DEVICE_H_

#include <stdlib.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include "sim/device.h"

namespace baton::sim {

class TempDevice {
 public:
  explicit TempDevice(DeviceOptions options = {}) {
    std::string directory =
        access("/dev/shm", W_OK) == 0 ? "/dev/shm/simtest.XXXXXX" : "/tmp/simtest.XXXXXX";
    if (mkdtemp(directory.data()) == nullptr) throw std::runtime_error("mkdtemp");
    directory_ = directory;
    auto made = CreateDeviceFile(path(), options);
    if (!made) throw std::runtime_error(made.error().message);
  }
  ~TempDevice() {
    unlink(path().c_str());
    rmdir(directory_.c_str());
  }
  TempDevice(const TempDevice&) = delete;
  TempDevice& operator=(const TempDevice&) = delete;
  std::string path() const { return directory_ + "/0.gpu"; }

 private:
  std::string directory_;
};

}  // namespace baton::sim

#endif  // BATON_TESTS_SIM_TEMP_DEVICE_H_
