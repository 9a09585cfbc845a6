// A device file that goes when the test does.
#ifndef BATON_TESTS_SIM_TEMP_DEVICE_H_
#define BATON_TESTS_SIM_TEMP_DEVICE_H_

#include <stdexcept>
#include <string>

#include "sim/device.h"
#include "tests/temp_folder.h"

namespace baton::sim {

class TempDevice {
 public:
  explicit TempDevice(DeviceOptions options = {}) {
    auto made = CreateDeviceFile(path(), options);
    if (!made) throw std::runtime_error(made.error().message);
  }
  std::string path() const { return folder_ / "0.gpu"; }

 private:
  const MemoryFolder folder_;
};

}  // namespace baton::sim

#endif  // BATON_TESTS_SIM_TEMP_DEVICE_H_
